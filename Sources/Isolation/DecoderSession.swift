internal import Codec
internal import Jobs

/// One picture and its decoder: the request that is under way, and what becomes of the process at the end.
final class DecoderSession {
  private let pool: DecoderPool
  private var process: DecoderProcess?
  private var isAsked = false

  init(_ pool: DecoderPool) { self.pool = pool }

  deinit {
    guard let process else { return }
    if isAsked {
      pool.discard(process)
    } else {
      giveBack(process, isClean: false)
    }
  }

  private func giveBack(_ process: DecoderProcess, isClean: Bool) {
    if isClean || (try? process.say(.drop)) != nil {
      pool.giveBack(process)
    } else {
      pool.discard(process)
    }
  }

  private var patience: Duration { pool.configuration.patience }

  /// Computes for a slice.
  /// - Parameter request: made where none is under way: the step, and the bytes that go with it; nil: there is nothing to ask.
  /// - Returns: nil where there was nothing to ask, or where the slice was over before the answer came.
  func step(
    _ request: () -> (DecoderRequest.Step, ArraySlice<UInt8>)?
  ) throws(CodecError) -> DecoderReply? {
    if !isAsked {
      guard let (step, piece) = request() else { return nil }
      try ask(step, piece)
    }
    return try guarded { process throws(DecoderLoss) in
      guard let message = try process.answer(within: 10, patience: patience) else { return nil }
      isAsked = false
      do throws(MalformedMessage) { return try DecoderReply(message) } catch {
        throw .lied("a message")
      }
    }
  }

  private func ask(
    _ step: DecoderRequest.Step, _ piece: ArraySlice<UInt8>
  ) throws(CodecError) {
    // One that ended while it was idle is no picture's doing; it is found out when it is spoken to.
    guard step.task != nil else {
      try guarded { process throws(DecoderLoss) in try process.ask(.step(step), with: piece) }
      isAsked = true
      return
    }
    for _ in 0...pool.configuration.mostIdle + 1 {
      let process = try pool.borrow()
      guard let permitted = step.permitted(by: process.layers) else {
        pool.giveBack(process)
        throw step.refusal
      }
      do throws(DecoderLoss) {
        try process.ask(.step(permitted), with: piece)
        (self.process, isAsked) = (process, true)
        return
      } catch { _ = pool.lost(process, error) }
    }
    throw .noDecoder
  }

  /// The files that a reply tells of.
  /// - Parameter most: bytes of all of them.
  func files(
    of reply: DecoderReply, most: Int
  ) throws(CodecError) -> [Result<[UInt8], CodecError>?] {
    try guarded { process throws(DecoderLoss) in
      var (files, place): ([Result<[UInt8], CodecError>?], Int) = ([], 0)
      for (number, file) in reply.files.enumerated() {
        switch file {
        case .missing: files.append(nil)
        case .failed(let error): files.append(.failure(error))
        case .made(let count):
          guard count <= most - place, !reply.arePlaced || place + count <= SharedMemory.room else {
            throw .lied("a file of \(count) bytes")
          }
          let bytes =
            reply.arePlaced
            ? process.results(place..<place + count)
            : try process.take(file: number, count: count, patience: patience)
          files.append(.success(bytes))
          place += count
        }
      }
      return files
    }
  }

  func preview(_ note: DecoderReply.PreviewNote) throws(CodecError) -> Preview {
    try guarded { process throws(DecoderLoss) in
      let bytes = try process.take(
        file: SharedMemory.preview, count: note.count, patience: patience)
      return Preview(bytes: bytes, format: note.format, scan: note.scan)
    }
  }

  /// What can't be ends the decoder.
  func accuse(_ what: String) -> CodecError { lose(.lied(what)) }

  /// The picture has come to its end, and the decoder has forgotten it or is told to.
  func finish(isForgotten: Bool) {
    guard let process else { return }
    self.process = nil
    giveBack(process, isClean: isForgotten)
  }

  private func guarded<Value>(
    _ body: (DecoderProcess) throws(DecoderLoss) -> Value
  ) throws(CodecError) -> Value {
    guard let process else { throw .crashed(how: "it had ended") }
    do throws(DecoderLoss) { return try body(process) } catch { throw lose(error) }
  }

  private func lose(_ loss: DecoderLoss) -> CodecError {
    guard let process else { return .crashed(how: "it had ended") }
    self.process = nil
    isAsked = false
    return pool.lost(process, loss)
  }
}

extension DecoderRequest.Step {
  /// As a decoder may have it that is held by so much; nil: not at all.
  func permitted(by layers: IsolatedCodec.Layers) -> Self? {
    if layers.hasFilter { return self }
    var copy = self
    switch task {
    case .decode(var limits, let variants):
      limits.formats.subtract(ImageFormat.needingIsolation)
      copy.task = .decode(limits, variants)
    case .render(let image, _, _) where ImageFormat.needingIsolation.contains(image.format):
      return nil
    case .render, nil: break
    }
    return copy
  }

  fileprivate var refusal: CodecError {
    guard case .render(let image, _, _) = task else { return .unsupportedFormat(name: nil) }
    return .unsupportedFormat(name: image.format.name)
  }
}
