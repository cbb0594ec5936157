internal import Jobs

/// A request from the service to a decoder process. The bytes of images are in the shared memory.
enum DecoderRequest {
  /// The work on an image. Part of the image's first request.
  enum Task {
    case decode(DecodeLimits, [VariantRequest])
    /// Renders an image that was decoded before and has this many bytes.
    case render(ImageDescription, bytes: Int, [VariantRequest])
  }

  enum PreviewRequest: UInt8, CaseIterable {
    case none, begin, drop
  }

  /// Computes for one slice. The reply is a ``DecoderReply``.
  struct Step {
    /// Nil if the decoder continues with the current image.
    var task: Task?
    /// How many bytes are at the start of the memory.
    var count = 0
    /// Whether these are the image's last bytes.
    var hasEnded = false
    var preview = PreviewRequest.none
  }

  case step(Step)
  /// Copies a file's bytes from this offset on into the memory, as many as fit. The reply is their number.
  case fetch(file: Int, offset: Int)
  /// Discards the image. There is no reply.
  case discard
}

/// The layout of the shared memory: the service's bytes, then the decoder's bytes, then one number of the decoder.
/// Also the limits of a step.
enum SharedMemory {
  /// The size of each half, in bytes.
  static let halfSize = 1 << 20
  static let count = longestStep + MemoryLayout<UInt32>.size
  /// Where the decoder writes how many milliseconds of CPU time a step of the image may take, as soon as it knows. A
  /// reply would be too late for that if the step never ends.
  static let longestStep = 2 * halfSize
  /// The longest message, in bytes.
  static let largestMessage = 16 << 10
  /// Images that need at most this much memory are decoded before the service has reserved memory. Their reply has
  /// both the header and the result.
  static let smallDecode = 4 << 20
  /// How long a decoder computes before it replies that there is more to do. Enough for small images and for a photo
  /// with a thumbnail.
  static let slice = Duration.milliseconds(8)
  /// The number that means the preview. Files are numbered from 0.
  static let preview = -1
}

extension DecoderRequest {
  /// - Parameter number: repeated in the reply. Replies with an older number are ignored.
  func message(number: Int) -> [UInt8] {
    var writer = MessageWriter()
    writer.add(number)
    switch self {
    case .step(let step):
      writer.add(UInt8(0))
      writer.add(step.task) { $0.add($1) }
      writer.add(step.count)
      writer.add(step.hasEnded)
      writer.add(choice: step.preview)
    case .fetch(let file, let offset):
      writer.add(UInt8(1))
      writer.add(file)
      writer.add(offset)
    case .discard:
      writer.add(UInt8(2))
    }
    return writer.bytes
  }

  /// Reads the content after the number.
  init(_ reader: inout MessageReader) throws(MalformedMessage) {
    switch try reader.byte() {
    case 0:
      let task = try reader.optional { (r) throws(MalformedMessage) in try r.task() }
      let count = try reader.integer(in: 0...SharedMemory.halfSize)
      let hasEnded = try reader.bool()
      self = .step(
        Step(task: task, count: count, hasEnded: hasEnded, preview: try reader.choice()))
    case 1:
      self = .fetch(
        file: try reader.integer(in: SharedMemory.preview...VariantRequest.most * 8),
        offset: try reader.integer(in: 0...(.max)))
    case 2: self = .discard
    default: throw MalformedMessage()
    }
    try reader.expectEnd()
  }
}

extension MessageWriter {
  mutating func add(_ task: DecoderRequest.Task) {
    switch task {
    case .decode(let limits, let variants):
      add(UInt8(0))
      add(limits)
      add(variants) { $0.add($1) }
    case .render(let image, let count, let variants):
      add(UInt8(1))
      add(image)
      add(count)
      add(variants) { $0.add($1) }
    }
  }

  private mutating func add(_ limits: DecodeLimits) {
    add(ImageFormat.allCases.filter(limits.formats.contains)) { $0.add(choice: $1) }
    add(limits.maxPixels)
    add(limits.maxDimension)
    add(limits.maxFrames)
    add(limits.maxScans)
    add(limits.maxMemory)
  }

  private mutating func add(_ request: VariantRequest) {
    add(request.width) { $0.add($1) }
    add(request.height) { $0.add($1) }
    add(choice: request.fit)
    add(request.position.x)
    add(request.position.y)
    add(request.enlarge)
    add(request.format) { $0.add(choice: $1) }
    add(request.quality) { $0.add($1) }
    add(request.background) { writer, color in
      for part in [color.red, color.green, color.blue] { writer.add(part) }
    }
    add(request.isAnimated)
    add(request.shrink) { $0.add($1) }
  }
}

extension MessageReader {
  fileprivate mutating func task() throws(MalformedMessage) -> DecoderRequest.Task {
    switch try byte() {
    case 0: return .decode(try limits(), try variants())
    case 1:
      return .render(try description(), bytes: try integer(in: 0...(.max)), try variants())
    default: throw MalformedMessage()
    }
  }

  private mutating func limits() throws(MalformedMessage) -> DecodeLimits {
    let formats = try list(most: ImageFormat.allCases.count) {
      (reader) throws(MalformedMessage) -> ImageFormat in try reader.choice()
    }
    var limits = DecodeLimits(formats: Set(formats))
    limits.maxPixels = try integer()
    limits.maxDimension = try integer()
    limits.maxFrames = try integer()
    limits.maxScans = try integer()
    limits.maxMemory = try integer()
    return limits
  }

  private mutating func variants() throws(MalformedMessage) -> [VariantRequest] {
    try list(most: VariantRequest.most * 8) { (r) throws(MalformedMessage) in try r.variant() }
  }

  private mutating func variant() throws(MalformedMessage) -> VariantRequest {
    var request = VariantRequest(name: "")
    request.width = try optional { (r) throws(MalformedMessage) in try r.integer() }
    request.height = try optional { (r) throws(MalformedMessage) in try r.integer() }
    request.fit = try choice()
    request.position = Variant.Position(x: try integer(in: 0...100), y: try integer(in: 0...100))
    request.enlarge = try bool()
    request.format = try optional { (r) throws(MalformedMessage) in try r.choice() }
    request.quality = try optional { (r) throws(MalformedMessage) in try r.integer() }
    request.background = try optional { (r) throws(MalformedMessage) in
      Variant.Color(red: try r.byte(), green: try r.byte(), blue: try r.byte())
    }
    request.isAnimated = try bool()
    request.shrink = try optional { (r) throws(MalformedMessage) in try r.integer(in: 1...8) }
    return request
  }
}

/// Writes a message: integers in little-endian order, texts and arrays after their counts.
struct MessageWriter {
  private(set) var bytes: [UInt8] = []

  mutating func add(_ value: UInt8) { bytes.append(value) }

  mutating func add(_ value: Bool) { bytes.append(value ? 1 : 0) }

  mutating func add(_ value: Int) {
    withUnsafeBytes(of: Int64(value).littleEndian) { bytes.append(contentsOf: $0) }
  }

  mutating func add(_ value: [UInt8]) {
    add(value.count)
    bytes.append(contentsOf: value)
  }

  mutating func add(_ text: String) { add(Array(text.utf8)) }

  mutating func add<Value>(_ value: Value?, _ write: (inout Self, Value) -> Void) {
    add(value != nil)
    if let value { write(&self, value) }
  }

  mutating func add<Value>(_ values: [Value], _ write: (inout Self, Value) -> Void) {
    add(values.count)
    for value in values { write(&self, value) }
  }

  mutating func add<Value: CaseIterable & Equatable>(choice value: Value) {
    // The value is always one of `allCases`.
    add(UInt8(Value.allCases.enumerated().first { $0.element == value }!.offset))
  }
}

/// Thrown if bytes are not a valid message.
struct MalformedMessage: Error {}

/// Reads a message from an untrusted process. Each read stays within the bytes, and each count within a limit.
struct MessageReader {
  private let bytes: [UInt8]
  private var place = 0

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  mutating func byte() throws(MalformedMessage) -> UInt8 {
    guard place < bytes.count else { throw MalformedMessage() }
    defer { place += 1 }
    return bytes[place]
  }

  mutating func bool() throws(MalformedMessage) -> Bool {
    switch try byte() {
    case 0: false
    case 1: true
    default: throw MalformedMessage()
    }
  }

  mutating func integer(in range: ClosedRange<Int> = .min ... .max) throws(MalformedMessage) -> Int
  {
    guard bytes.count - place >= 8 else { throw MalformedMessage() }
    let value = bytes.withUnsafeBytes { raw in
      Int(Int64(littleEndian: raw.loadUnaligned(fromByteOffset: place, as: Int64.self)))
    }
    place += 8
    guard range.contains(value) else { throw MalformedMessage() }
    return value
  }

  mutating func byteArray(max: Int) throws(MalformedMessage) -> [UInt8] {
    let count = try integer(in: 0...max)
    guard count <= bytes.count - place else { throw MalformedMessage() }
    defer { place += count }
    return Array(bytes[place..<place + count])
  }

  /// The text is shown to people and in logs, so only printable ASCII is kept.
  mutating func text(max: Int) throws(MalformedMessage) -> String {
    String(decoding: try byteArray(max: max).filter { (0x20...0x7E).contains($0) }, as: UTF8.self)
  }

  mutating func optional<Value>(
    _ read: (inout Self) throws(MalformedMessage) -> Value
  ) throws(MalformedMessage) -> Value? {
    try bool() ? try read(&self) : nil
  }

  mutating func list<Value>(
    most: Int, _ read: (inout Self) throws(MalformedMessage) -> Value
  ) throws(MalformedMessage) -> [Value] {
    var values: [Value] = []
    for _ in 0..<(try integer(in: 0...most)) { values.append(try read(&self)) }
    return values
  }

  mutating func choice<Value: CaseIterable>() throws(MalformedMessage) -> Value {
    let number = Int(try byte())
    guard let value = Value.allCases.dropFirst(number).first else { throw MalformedMessage() }
    return value
  }

  /// Throws if bytes are left.
  func expectEnd() throws(MalformedMessage) {
    guard place == bytes.count else { throw MalformedMessage() }
  }
}
