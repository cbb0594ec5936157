internal import Jobs

/// A reply together with the files that it tells of: copied at once where they lie in the memory, else asked for piece by
/// piece, each a step of its own, as a decoder may take its time.
struct DecoderAnswer {
  let reply: DecoderReply
  /// In the order in which they were asked for; nil: it has to be rendered.
  private(set) var files: [Result<[UInt8], CodecError>?] = []
  private(set) var preview: Preview?
  private var missing: ArraySlice<(file: Int, count: Int)> = []
  /// Of the first that is missing.
  private var part: [UInt8] = []

  /// - Parameters:
  ///   - most: bytes of all files, and of a preview.
  ///   - wantsPreview: whether one is taken.
  init(
    _ reply: DecoderReply, from process: DecoderProcess, most: Int, wantsPreview: Bool
  ) throws(DecoderLoss) {
    self.reply = reply
    // Each file costs a copy here: only what is at its end has any.
    guard reply.files.isEmpty || reply.isAtEnd else { throw .lied("its files") }
    var place = 0
    for (number, file) in reply.files.enumerated() {
      switch file {
      case .missing: files.append(nil)
      case .failed(let error): files.append(.failure(error))
      case .made(let count):
        guard count <= most - place, !reply.arePlaced || place + count <= SharedMemory.room else {
          throw .lied("a file of \(count) bytes")
        }
        files.append(.success(reply.arePlaced ? process.results(place..<place + count) : []))
        if !reply.arePlaced { missing.append((number, count)) }
        place += count
      }
    }
    guard wantsPreview, let note = reply.preview else { return }
    guard note.count <= most else { throw .lied("a preview of \(note.count) bytes") }
    missing.append((SharedMemory.preview, note.count))
  }

  /// What has to be asked for; nil once all of it is here.
  var next: DecoderRequest? { missing.first.map { .take(file: $0.file, offset: part.count) } }

  /// Takes the piece that was asked for.
  mutating func take(_ answer: MessageReader, of process: DecoderProcess) throws(DecoderLoss) {
    guard let (file, count) = missing.first else { return }
    var answer = answer
    let most = min(SharedMemory.room, count - part.count)
    guard (try? answer.integer(in: most...most)) != nil else { throw .lied("a file's length") }
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
