internal import Jobs

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
