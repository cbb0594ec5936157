internal import Codec
internal import Jobs

/// One picture and its decoder: the request that is under way, and what becomes of the process at the end.
final class DecoderSession {
  private let pool: DecoderPool
  private var process: DecoderProcess?
  private var isAsked = false
  /// Of which something is still to be taken.
  private var answer: DecoderAnswer?
  /// Whether the one that was lost had other pictures before, and whether there is a second one.
  private var (hadOthers, isAgain) = (false, false)
  /// Whether the one that was lost went on for ever.
  private var wasEndless = false
  /// Of the picture's bytes, those held for a second decoder that others pay for.
  private var remembered = 0
  /// Asked for, and not told yet.
  private var previews = 0
  /// Whether there was a pause since the last look for an answer.
  private var hasRested = false

  init(_ pool: DecoderPool) { self.pool = pool }

  deinit {
    forget()
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

  /// Whether a picture that is still arriving waits for more of its bytes.
  var isCrowded: Bool { process == nil && pool.isCrowded }

  /// Computes for a slice.
  /// - Parameters:
  ///   - most: bytes of all files that a reply tells of.
  ///   - wantsPreview: whether one is taken.
  ///   - request: made where none is under way: the step, and the bytes that go with it; nil: there is nothing to ask.
  /// - Returns: nil where there was nothing to ask, or where the slice was over before all of the answer came.
  func step(
    most: Int, wantsPreview: Bool = false,
    _ request: () -> (DecoderRequest.Step, ArraySlice<UInt8>)?
  ) throws(CodecError) -> DecoderAnswer? {
    if !isAsked {
      if let next = answer?.next {
        try guarded { process throws(DecoderLoss) in try process.ask(next) }
        isAsked = true
      } else {
        guard let (step, piece) = request() else { return nil }
        try ask(step, piece)
      }
    }
    defer { hasRested = false }
    return try guarded { process throws(DecoderLoss) in
      guard let message = try process.answer(pool.configuration, hasRested: hasRested) else {
        return nil
      }
      isAsked = false
      try take(message, of: process, most, wantsPreview)
      guard let answer, answer.next == nil else { return nil }
      self.answer = nil
      return answer
    }
  }

  /// Lets others have a turn; where the decoder was put back, for as long as its answer is likely to take, so that none of
  /// their threads waits for it.
  /// - Returns: for how long the decoder had it to itself.
  func pause() async -> Duration {
    hasRested = true
    guard isAsked, let rest = process?.rest else {
      await Task.yield()
      return .zero
    }
    let start = ContinuousClock.now
    try? await Task.sleep(for: rest)
    return ContinuousClock.now - start
  }

  private func take(
    _ message: MessageReader, of process: DecoderProcess, _ most: Int, _ wantsPreview: Bool
  ) throws(DecoderLoss) {
    guard answer == nil else {
      try answer?.take(message, of: process)
      return
    }
    var message = message
    guard let reply = try? DecoderReply(&message) else { throw .lied("a message") }
    try hold(reply, of: process)
    answer = try DecoderAnswer(reply, from: process, most: most, wantsPreview: wantsPreview)
  }

  /// Quick answers that bring nothing on would go on for ever, as each is in time.
  private func hold(
    _ reply: DecoderReply, of process: DecoderProcess
  ) throws(DecoderLoss) {
    if reply.preview != nil {
      guard previews > 0 else { throw .lied("a preview that nobody wants") }
      previews -= 1
    } else if case .hasMore = reply.outcome, reply.header == nil {
      // Both look at the same clock, and it begins later and ends earlier by that.
      guard process.sinceAsked >= SharedMemory.slice else {
        throw .lied("more to compute, too soon")
      }
    }
  }

  private func ask(
    _ step: DecoderRequest.Step, _ piece: ArraySlice<UInt8>
  ) throws(CodecError) {
    guard step.task != nil else {
      if step.preview == .begin { previews += 1 }
      try guarded { process throws(DecoderLoss) in try process.ask(.step(step), with: piece) }
      isAsked = true
      return
    }
    // One that ended while it was idle is no picture's doing; it is found out when it is spoken to.
    for _ in 0...pool.configuration.mostIdle + 1 {
      let process = try pool.borrow(isFresh: isAgain)
      guard let permitted = step.permitted(by: process.layers) else {
        pool.giveBack(process)
        throw step.refusal
      }
      do throws(DecoderLoss) {
        if isAgain, wasEndless { process.putBack(entirely: true) }
        try process.begin(.step(permitted), with: piece, time: pool.configuration.maxTime)
        (self.process, isAsked, previews) = (process, true, 0)
        return
      } catch { _ = pool.lost(process, error) }
    }
    throw .noDecoder
  }

  /// Whether a picture that lost its decoder is to begin again with a fresh one: once, where the lost one had others before,
  /// each of which may have harmed it. Nobody is to have others' pictures fail so, be it by a crash or by a loop. What
  /// goes on for ever by itself costs little twice: the second time all others go first, from its beginning.
  func beginsAgain(after error: CodecError) -> Bool {
    guard case .crashed = error, hadOthers, !isAgain else { return false }
    isAgain = true
    forget()
    return true
  }

  /// Whether it could, if its decoder were lost now.
  var mayBeginAgain: Bool { !isAgain && (process?.pictures ?? .max) > 1 }

  /// Has it do so before anything went wrong.
  func changeDecoder() {
    leaveDecoder(isForgotten: false)
    isAgain = true
    forget()
  }

  /// - Parameter count: of the picture's bytes, all so far.
  /// - Returns: whether they may be held for a second decoder.
  func remember(_ count: Int) -> Bool {
    let more = max(0, count - Self.rememberedFreely) - remembered
    guard more > 0 else { return true }
    guard pool.remember(more) else { return false }
    remembered += more
    return true
  }

  private static let rememberedFreely = 256 << 10

  /// Nothing is held for a second decoder any more: it has begun, or none will.
  func forget() {
    guard remembered > 0 else { return }
    _ = pool.remember(-remembered)
    remembered = 0
  }

  /// What can't be ends the decoder.
  func accuse(_ what: String) -> CodecError { lose(.lied(what)) }

  /// The picture has come to its end, and the decoder has forgotten it or is told to.
  func finish(isForgotten: Bool) {
    forget()
    leaveDecoder(isForgotten: isForgotten)
  }

  private func leaveDecoder(isForgotten: Bool) {
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
    (self.process, isAsked, answer) = (nil, false, nil)
    hadOthers = process.pictures > 1
    let lost = pool.lost(process, loss)
    wasEndless = lost.isEndless
    return lost.error
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
