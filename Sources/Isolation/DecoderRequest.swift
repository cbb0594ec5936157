internal import Jobs

/// What the service asks of a decoder process. The bytes of images lie in the memory that both share.
enum DecoderRequest {
  /// A picture's first request says what is to be done with it.
  enum Task {
    case decode(DecodeLimits, [VariantRequest])
    /// Of an image that was decoded before and has so many bytes.
    case render(ImageDescription, bytes: Int, [VariantRequest])
  }

  enum PreviewWish: UInt8, CaseIterable {
    case none, begin, drop
  }

  /// To compute for a slice: answered by ``DecoderReply``.
  struct Step {
    /// Nil where it goes on with what it has.
    var task: Task?
    /// How many bytes lie at the memory's beginning.
    var count = 0
    /// Whether they are the last.
    var hasEnded = false
    var preview = PreviewWish.none
  }

  case step(Step)
  /// To put a file's bytes from there on into the memory, as many as there is room for: answered by their count.
  case take(file: Int, offset: Int)
  /// To forget the picture; not answered.
  case drop
}

/// How the two processes share their memory: the service's bytes first, then the decoder's, then a number of it; and how
/// they share a picture's work.
enum SharedMemory {
  /// Of each.
  static let room = 1 << 20
  static let count = longestStep + MemoryLayout<UInt32>.size
  /// Where the decoder tells, as soon as it knows, how many milliseconds of CPU time a step of the picture may take: its
  /// answer comes too late for that where the step never ends.
  static let longestStep = 2 * room
  /// Of a message.
  static let largestMessage = 16 << 10
  /// What is decoded without asking whether there is memory for it: in one answer with its header.
  static let smallDecode = 4 << 20
  /// How long a decoder computes before it says that there is more to compute: what is small is done in one, and so is a
  /// photo with a thumbnail.
  static let slice = Duration.milliseconds(8)
  /// The file that is a preview; the others are numbered from 0.
  static let preview = -1
}

extension DecoderRequest {
  /// - Parameter number: which the answer begins with: one that was sent before is none.
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
    case .take(let file, let offset):
      writer.add(UInt8(1))
      writer.add(file)
      writer.add(offset)
    case .drop:
      writer.add(UInt8(2))
    }
    return writer.bytes
  }

  /// What follows the number.
  init(_ reader: inout MessageReader) throws(MalformedMessage) {
    switch try reader.byte() {
    case 0:
      let task = try reader.optional { (r) throws(MalformedMessage) in try r.task() }
      let count = try reader.integer(in: 0...SharedMemory.room)
      let hasEnded = try reader.bool()
      self = .step(
        Step(task: task, count: count, hasEnded: hasEnded, preview: try reader.choice()))
    case 1:
      self = .take(
        file: try reader.integer(in: SharedMemory.preview...VariantRequest.most * 8),
        offset: try reader.integer(in: 0...(.max)))
    case 2: self = .drop
    default: throw MalformedMessage()
    }
    try reader.end()
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
