internal import Codec
internal import Jobs

/// The work on one image: its decoder process, the pending request, and what happens to the process at the end.
final class DecoderSession {
  private let pool: DecoderPool
  private var process: DecoderProcess?
  private var isAsked = false
  /// A reply whose files have not all arrived yet.
  private var answer: DecoderAnswer?
  /// Whether the lost decoder had decoded other images before, and whether a second decoder is in use.
  private var (hadOthers, isAgain) = (false, false)
  /// Whether the lost decoder ran endlessly.
  private var wasEndless = false
  /// How many of the kept bytes count toward the pool's limit.
  private var remembered = 0
  /// Previews that were requested and not received yet.
  private var previews = 0
  /// Whether there was a pause since the last check for a reply.
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

  /// Whether an arriving image should wait for more of its bytes.
  var isCrowded: Bool { process == nil && pool.isCrowded }

  /// Computes for a slice.
  /// - Parameters:
  ///   - most: the most bytes of all files in a reply.
  ///   - wantsPreview: whether a preview is fetched.
  ///   - request: called if no request is pending. Returns the step and its bytes; nil if there is nothing to
  ///     request.
  /// - Returns: nil if there was nothing to request, or if the complete reply has not arrived within the slice.
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

  /// Yields to other tasks. If the decoder's priority was lowered, sleeps for as long as its reply is likely to take,
  /// so that no thread waits for it.
  /// - Returns: how long it slept.
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
    guard let reply = try? DecoderReply(&message) else { throw .lied("a malformed message") }
    try hold(reply, of: process)
    answer = try DecoderAnswer(reply, from: process, most: most, wantsPreview: wantsPreview)
  }

  /// Rejects fast replies without progress. Each would be in time, so they could continue forever.
  private func hold(
    _ reply: DecoderReply, of process: DecoderProcess
  ) throws(DecoderLoss) {
    if reply.preview != nil {
      guard previews > 0 else { throw .lied("an unrequested preview") }
      previews -= 1
    } else if case .hasMore = reply.outcome, reply.header == nil {
      // Both processes read the same clock. The decoder starts later and stops earlier than the time measured here.
      guard process.sinceAsked >= SharedMemory.slice else {
        throw .lied("more work reported too early")
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
    // If a decoder ended while it was idle, its image is not to blame. It is noticed only when a request is sent.
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

  /// Whether to start again with a fresh decoder after this one was lost. This is done once, if the lost decoder had
  /// decoded other images before: one of them may have corrupted it, and no image may make another one fail. An image
  /// that never finishes costs little the second time, because its decoder then gets only idle CPU time.
  func beginsAgain(after error: CodecError) -> Bool {
    guard case .crashed = error, hadOthers, !isAgain else { return false }
    isAgain = true
    forget()
    return true
  }

  /// Whether the image could start again if its decoder were lost now.
  var mayBeginAgain: Bool { !isAgain && (process?.pictures ?? .max) > 1 }

  /// Switches to a fresh decoder before anything has failed.
  func changeDecoder() {
    leaveDecoder(isForgotten: false)
    isAgain = true
    forget()
  }

  /// - Parameter count: how many bytes of the image have arrived so far.
  /// - Returns: whether they may be kept for a second decoder.
  func remember(_ count: Int) -> Bool {
    let more = max(0, count - Self.rememberedFreely) - remembered
    guard more > 0 else { return true }
    guard pool.remember(more) else { return false }
    remembered += more
    return true
  }

  private static let rememberedFreely = 256 << 10

  /// Releases the bytes kept for a second decoder: it has started, or will not be needed.
  func forget() {
    guard remembered > 0 else { return }
    _ = pool.remember(-remembered)
    remembered = 0
  }

  /// Ends the decoder because of a protocol violation.
  func accuse(_ what: String) -> CodecError { lose(.lied(what)) }

  /// Finishes the image and returns its decoder to the pool. `isForgotten` means that the decoder has already
  /// discarded the image.
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
    guard let process else { throw .crashed(how: "it had already ended") }
    do throws(DecoderLoss) { return try body(process) } catch { throw lose(error) }
  }

  private func lose(_ loss: DecoderLoss) -> CodecError {
    guard let process else { return .crashed(how: "it had already ended") }
    (self.process, isAsked, answer) = (nil, false, nil)
    hadOthers = process.pictures > 1
    let lost = pool.lost(process, loss)
    wasEndless = lost.isEndless
    return lost.error
  }
}

extension DecoderRequest.Step {
  /// The step as allowed for a decoder with these sandbox layers; nil if it is not allowed.
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
