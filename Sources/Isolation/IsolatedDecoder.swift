internal import Jobs

/// A decoder in another process; each step is a request and, some 10 ms later at the most, its answer or none yet.
final class IsolatedDecoder: ImageDecoder {
  private enum State {
    case decoding
    case finished(ImageDescription)
    case failed(CodecError)
  }

  private let session: DecoderSession
  private let limits: DecodeLimits
  private let wanted: [VariantRequest]
  private var state = State.decoding
  private var pending: ArraySlice<UInt8> = []
  private var hasEnded = false
  /// What the decoder was told so far.
  private var (hasBegun, isToldOfEnd) = (false, false)
  private var wish = DecoderRequest.PreviewWish.none
  private var goesOn = false
  private var header: ImageHeader?
  /// What came in one answer with the header.
  private var next: Result<DecodeStep, CodecError>?
  private var preview: Preview?
  private(set) var hasMoreToShow = false
  private(set) var variants: [[UInt8]?] = []

  init(_ pool: DecoderPool, limits: DecodeLimits, variants: [VariantRequest]) {
    session = DecoderSession(pool)
    (self.limits, wanted) = (limits, variants)
  }

  func append(_ bytes: [UInt8]) {
    guard case .decoding = state else { return }
    if pending.isEmpty { pending = bytes[...] } else { pending += bytes }
  }

  func end() {
    hasEnded = true
    hasMoreToShow = false
  }

  func beginPreview() { if !hasEnded, hasBegun { wish = .begin } }

  func dropPreview() {
    preview = nil
    wish = hasBegun ? .drop : .none
  }

  func takePreview() -> Preview? {
    defer { preview = nil }
    return preview
  }

  func step() throws(CodecError) -> DecodeStep {
    do throws(CodecError) {
      if let told = next {
        next = nil
        return try told.get()
      }
      switch state {
      case .finished(let description): return .finished(description)
      case .failed(let error): throw error
      case .decoding: return try advance()
      }
    } catch {
      state = .failed(error)
      pending = []
      throw error
    }
  }

  private func advance() throws(CodecError) -> DecodeStep {
    var isIdle = false
    let reply = try session.step {
      let request = request()
      isIdle = request == nil
      return request
    }
    guard let reply else { return isIdle ? .needsBytes : .hasMore }
    guard let told = reply.header else { return try take(reply) }
    let header = try checked(told)
    next = Result { () throws(CodecError) in try take(reply) }
    return .header(header)
  }

  private func request() -> (DecoderRequest.Step, ArraySlice<UInt8>)? {
    let isLast = hasEnded && pending.count <= SharedMemory.room
    guard !pending.isEmpty || (isLast && !isToldOfEnd) || goesOn || wish == .begin else {
      return nil
    }
    let piece = pending.prefix(SharedMemory.room)
    pending = pending.dropFirst(piece.count)
    var step = DecoderRequest.Step(count: piece.count, hasEnded: isLast, preview: wish)
    if !hasBegun { step.task = .decode(limits, wanted) }
    (hasBegun, isToldOfEnd, wish) = (true, isLast, .none)
    return (step, piece)
  }

  private func take(_ reply: DecoderReply) throws(CodecError) -> DecodeStep {
    hasMoreToShow = reply.hasMoreToShow && !hasEnded
    if let note = reply.preview {
      guard note.format == .jpeg || note.format == .png else { throw session.accuse("a preview") }
      let made = try session.preview(note)
      if !hasEnded { preview = made }
    }
    goesOn = false
    switch reply.outcome {
    case .needsBytes: return pending.isEmpty ? .needsBytes : .hasMore
    case .hasMore:
      goesOn = true
      return .hasMore
    case .failed(let error):
      session.finish(isForgotten: true)
      throw error
    case .decoded(let description):
      try finish(description, reply)
      return .finished(description)
    case .rendered: throw session.accuse("files of a decode")
    }
  }

  private func finish(_ found: ImageDescription, _ reply: DecoderReply) throws(CodecError) {
    guard let seen = header,
      (found.format, found.width, found.height) == (seen.format, seen.width, seen.height),
      found.frames <= max(1, limits.maxFrames)
    else { throw session.accuse("a description") }
    guard reply.files.count == wanted.count else { throw session.accuse("its files") }
    variants = try session.files(of: reply, most: limits.maxMemory).map { try? $0?.get() }
    for case (let file?, let request) in zip(variants, wanted) {
      guard request.format?.begins(file) ?? true else { throw session.accuse("a file's format") }
    }
    session.finish(isForgotten: reply.arePlaced)
    state = .finished(found)
    pending = []
  }

  /// A header is believed only within the limits that it should have been held to.
  private func checked(_ header: ImageHeader) throws(CodecError) -> ImageHeader {
    guard self.header == nil || self.header == header,
      limits.formats.contains(header.format),
      header.width <= limits.maxDimension, header.height <= limits.maxDimension,
      header.width.multipliedReportingOverflow(by: header.height).partialValue <= limits.maxPixels
    else { throw session.accuse("a header") }
    self.header = header
    return header
  }
}
