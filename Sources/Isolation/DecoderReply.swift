internal import Jobs

/// A decoder process's reply to a step.
struct DecoderReply {
  enum Outcome {
    case needsBytes
    case hasMore
    /// The image is decoded completely.
    case decoded(ImageDescription)
    /// The variants are finished.
    case rendered
    case failed(CodecError)
  }

  /// A file that can be fetched.
  enum File {
    case made(count: Int)
    case failed(CodecError)
    /// It must be rendered later from the image's bytes.
    case missing
  }

  struct PreviewInfo {
    var format: ImageFormat
    var scan: Int
    var count: Int
  }

  /// The header, if it was read in this step.
  var header: ImageHeader?
  var outcome: Outcome
  var hasMoreToShow = false
  /// The preview, if it was made in this step.
  var preview: PreviewInfo?
  /// The files, in the order of the requested variants. Only at the end.
  var files: [File] = []
  /// Whether all files are in the memory already, one after another.
  var areInMemory = false

  init(_ outcome: Outcome) { self.outcome = outcome }

  /// Whether the reply may have files.
  var isAtEnd: Bool {
    switch outcome {
    case .decoded, .rendered: true
    case .needsBytes, .hasMore, .failed: false
    }
  }
}

extension DecoderReply {
  /// - Parameter number: the number of the request that it answers.
  func message(number: Int) -> [UInt8] {
    var writer = MessageWriter()
    writer.add(number)
    writer.add(header) { writer, header in
      writer.add(choice: header.format)
      for value in [header.width, header.height, header.decodingMemory] { writer.add(value) }
    }
    writer.add(outcome)
    writer.add(hasMoreToShow)
    writer.add(preview) { writer, preview in
      writer.add(choice: preview.format)
      writer.add(preview.scan)
      writer.add(preview.count)
    }
    writer.add(files) { $0.add($1) }
    writer.add(areInMemory)
    return writer.bytes
  }

  /// Reads the content after the number.
  init(_ reader: inout MessageReader) throws(MalformedMessage) {
    let header = try reader.optional { (r) throws(MalformedMessage) in
      ImageHeader(
        format: try r.choice(), width: try r.integer(in: 1...Self.most),
        height: try r.integer(in: 1...Self.most), decodingMemory: try r.integer(in: 0...(.max)))
    }
    self.init(try reader.outcome())
    self.header = header
    hasMoreToShow = try reader.bool()
    preview = try reader.optional { (r) throws(MalformedMessage) in
      PreviewInfo(
        format: try r.choice(), scan: try r.integer(in: 1...Self.most),
        count: try r.integer(in: 1...Preview.mostBytes))
    }
    files = try reader.list(most: VariantRequest.most * 8) {
      (r) throws(MalformedMessage) in try r.file()
    }
    areInMemory = try reader.bool()
    try reader.expectEnd()
  }

  /// The limit for sides, frames and scans: more than any format allows.
  fileprivate static let most = Int(Int32.max)
}

extension Preview {
  /// The limit that `StreamingCodec` promises.
  static let mostBytes = 8 << 20
}

extension MessageWriter {
  fileprivate mutating func add(_ outcome: DecoderReply.Outcome) {
    switch outcome {
    case .needsBytes: add(UInt8(0))
    case .hasMore: add(UInt8(1))
    case .decoded(let description):
      add(UInt8(2))
      add(description)
    case .rendered: add(UInt8(3))
    case .failed(let error):
      add(UInt8(4))
      add(error)
    }
  }

  fileprivate mutating func add(_ file: DecoderReply.File) {
    switch file {
    case .made(let count):
      add(UInt8(0))
      add(count)
    case .failed(let error):
      add(UInt8(1))
      add(error)
    case .missing: add(UInt8(2))
    }
  }

  mutating func add(_ image: ImageDescription) {
    add(choice: image.format)
    for value in [image.width, image.height, image.orientation, image.frames] { add(value) }
    add(image.isProgressive)
    add(image.hasAlpha)
    add(image.extraMemory) { writer, bytes in writer.add(bytes) }
    add(image.lqip) { writer, lqip in
      writer.add(lqip.thumbHash)
      writer.add(lqip.dominantColor)
    }
  }

  private mutating func add(_ error: CodecError) {
    // An error has only texts and integers, which JSON can express.
    add((try? StoredJSON.encode(error)) ?? [])
  }
}

extension MessageReader {
  fileprivate mutating func outcome() throws(MalformedMessage) -> DecoderReply.Outcome {
    switch try byte() {
    case 0: .needsBytes
    case 1: .hasMore
    case 2: .decoded(try description())
    case 3: .rendered
    case 4: .failed(try error())
    default: throw MalformedMessage()
    }
  }

  fileprivate mutating func file() throws(MalformedMessage) -> DecoderReply.File {
    switch try byte() {
    case 0: .made(count: try integer(in: 1...(.max)))
    case 1: .failed(try error())
    case 2: .missing
    default: throw MalformedMessage()
    }
  }

  mutating func description() throws(MalformedMessage) -> ImageDescription {
    let most = DecoderReply.most
    var image = ImageDescription(
      format: try choice(), width: try integer(in: 1...most), height: try integer(in: 1...most))
    image.orientation = try integer(in: 1...8)
    image.frames = try integer(in: 1...most)
    image.isProgressive = try bool()
    image.hasAlpha = try bool()
    image.extraMemory = try optional { (r) throws(MalformedMessage) in
      try r.integer(in: 1...(.max))
    }
    image.lqip = try optional { (r) throws(MalformedMessage) in
      let lqip = LQIP(thumbHash: try r.byteArray(max: 64), dominantColor: try r.byteArray(max: 3))
      guard lqip.thumbHash.count >= 5, lqip.dominantColor.count == 3 else {
        throw MalformedMessage()
      }
      return lqip
    }
    return image
  }

  private mutating func error() throws(MalformedMessage) -> CodecError {
    let record = Array(try text(max: 1024).utf8)
    // Escapes are refused, because they could produce characters that `text(max:)` does not accept.
    guard !record.contains(UInt8(ascii: "\\")),
      let error = try? StoredJSON.decode(CodecError.self, from: record)
    else { throw MalformedMessage() }
    switch error {
    // Only the service may report these.
    case .crashed, .noDecoder: throw MalformedMessage()
    default: return error
    }
  }
}

/// A reply together with its files. Files in the shared memory are copied at once. Others are requested piece by
/// piece; each piece is a step of its own, because the decoder may take its time.
struct CompleteReply {
  let reply: DecoderReply
  /// In the order of the requested variants. Nil means that the variant must be rendered later.
  private(set) var files: [Result<[UInt8], CodecError>?] = []
  private(set) var preview: Preview?
  private var missing: ArraySlice<(file: Int, count: Int)> = []
  /// The received part of the first missing file.
  private var part: [UInt8] = []

  /// - Parameters:
  ///   - most: the most bytes of all files together, and of a preview.
  ///   - wantsPreview: whether a preview is fetched.
  init(
    _ reply: DecoderReply, from process: DecoderProcess, most: Int, wantsPreview: Bool
  ) throws(DecoderLoss) {
    self.reply = reply
    // Each file costs a copy here, so only the last reply may have files.
    guard reply.files.isEmpty || reply.isAtEnd else { throw .protocolViolation("unexpected files") }
    var place = 0
    for (number, file) in reply.files.enumerated() {
      switch file {
      case .missing: files.append(nil)
      case .failed(let error): files.append(.failure(error))
      case .made(let count):
        guard count <= most - place, !reply.areInMemory || place + count <= SharedMemory.halfSize
        else {
          throw .protocolViolation("a file of \(count) bytes")
        }
        files.append(.success(reply.areInMemory ? process.results(place..<place + count) : []))
        if !reply.areInMemory { missing.append((number, count)) }
        place += count
      }
    }
    guard wantsPreview, let note = reply.preview else { return }
    guard note.count <= most else { throw .protocolViolation("a preview of \(note.count) bytes") }
    missing.append((SharedMemory.preview, note.count))
  }

  /// The request for the next piece; nil once everything has arrived.
  var next: DecoderRequest? { missing.first.map { .fetch(file: $0.file, offset: part.count) } }

  /// Adds the piece that was requested.
  mutating func addPiece(_ answer: MessageReader, from process: DecoderProcess) throws(DecoderLoss)
  {
    guard let (file, count) = missing.first else { return }
    var answer = answer
    let most = min(SharedMemory.halfSize, count - part.count)
    guard (try? answer.integer(in: most...most)) != nil else {
      throw .protocolViolation("a wrong file length")
    }
    part += process.results(0..<most)
    guard part.count == count else { return }
    if file != SharedMemory.preview {
      files[file] = .success(part)
    } else if let note = reply.preview {
      preview = Preview(bytes: part, format: note.format, scan: note.scan)
    }
    part = []
    missing = missing.dropFirst()
  }
}
