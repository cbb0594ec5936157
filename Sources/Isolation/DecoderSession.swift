internal import Codec
internal import Jobs

/// The work on one image: its decoder process, the pending request, and what happens to the process at the end.
final class DecoderSession {
  private let pool: DecoderPool
  private var process: DecoderProcess?
  private var isReplyPending = false
  /// A reply whose files have not all arrived yet.
  private var partialAnswer: CompleteReply?
  /// Whether the lost decoder had decoded other images before, and whether a second decoder is in use.
  private var (wasReused, isSecondAttempt) = (false, false)
  /// Whether the lost decoder ran endlessly.
  private var wasEndless = false
  /// Previews that were requested and not received yet.
  private var previews = 0
  /// Whether there was a pause since the last check for a reply.
  private var hasPaused = false

  init(_ pool: DecoderPool) { self.pool = pool }

  deinit {
    guard let process else { return }
    if isReplyPending {
      pool.discard(process)
    } else {
      release(process, isClean: false)
    }
  }

  private func release(_ process: DecoderProcess, isClean: Bool) {
    if isClean || (try? process.send(.discard)) != nil {
      pool.release(process)
    } else {
      pool.discard(process)
    }
  }

  /// Whether an arriving image should wait for more of its bytes.
  var isCrowded: Bool { process == nil && pool.isNearCapacity }

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
  ) throws(CodecError) -> CompleteReply? {
    if !isReplyPending {
      if let next = partialAnswer?.next {
        try withProcess { process throws(DecoderLoss) in try process.sendRequest(next) }
        isReplyPending = true
      } else {
        guard let (step, piece) = request() else { return nil }
        try send(step, piece)
      }
    }
    defer { hasPaused = false }
    return try withProcess { process throws(DecoderLoss) in
      guard let message = try process.receiveReply(pool.configuration, hasPaused: hasPaused) else {
        return nil
      }
      isReplyPending = false
      try handle(message, from: process, most, wantsPreview)
      guard let partialAnswer, partialAnswer.next == nil else { return nil }
      self.partialAnswer = nil
      return partialAnswer
    }
  }

  /// Yields to other tasks. If the decoder's priority was lowered, sleeps for as long as its reply is likely to take,
  /// so that no thread waits for it.
  /// - Returns: how long it slept.
  func pause() async -> Duration {
    hasPaused = true
    guard isReplyPending, let rest = process?.suggestedPause else {
      await Task.yield()
      return .zero
    }
    let start = ContinuousClock.now
    try? await Task.sleep(for: rest)
    return ContinuousClock.now - start
  }

  private func handle(
    _ message: MessageReader, from process: DecoderProcess, _ most: Int, _ wantsPreview: Bool
  ) throws(DecoderLoss) {
    guard partialAnswer == nil else {
      try partialAnswer?.addPiece(message, from: process)
      return
    }
    var message = message
    guard let reply = try? DecoderReply(&message) else {
      throw .protocolViolation("a malformed message")
    }
    try validate(reply, from: process)
    partialAnswer = try CompleteReply(reply, from: process, most: most, wantsPreview: wantsPreview)
  }

  /// Rejects fast replies without progress. Each would be in time, so they could continue forever.
  private func validate(
    _ reply: DecoderReply, from process: DecoderProcess
  ) throws(DecoderLoss) {
    if reply.preview != nil {
      guard previews > 0 else { throw .protocolViolation("an unrequested preview") }
      previews -= 1
    } else if case .hasMore = reply.outcome, reply.header == nil {
      // Both processes read the same clock. The decoder starts later and stops earlier than the time measured here.
      guard process.sinceAsked >= SharedMemory.slice else {
        throw .protocolViolation("more work reported too early")
      }
    }
  }

  private func send(
    _ step: DecoderRequest.Step, _ piece: ArraySlice<UInt8>
  ) throws(CodecError) {
    guard step.task != nil else {
      if step.preview == .begin { previews += 1 }
      try withProcess { process throws(DecoderLoss) in
        try process.sendRequest(.step(step), with: piece)
      }
      isReplyPending = true
      return
    }
    // If a decoder ended while it was idle, its image is not to blame. It is noticed only when a request is sent.
    for _ in 0...pool.configuration.maxIdle + 1 {
      let process = try pool.borrow(isFresh: isSecondAttempt)
      guard let permitted = step.permitted(by: process.layers) else {
        pool.release(process)
        throw step.refusal
      }
      do throws(DecoderLoss) {
        if isSecondAttempt, wasEndless { process.lowerPriority(entirely: true) }
        try process.begin(.step(permitted), with: piece, time: pool.configuration.maxTime)
        (self.process, isReplyPending, previews) = (process, true, 0)
        return
      } catch { _ = pool.handleLoss(of: process, error) }
    }
    throw .noDecoder
  }

  /// Whether to start again with a fresh decoder after this one was lost. This is done once, if the lost decoder had
  /// decoded other images before: one of them may have corrupted it, and no image may make another one fail. An image
  /// that never finishes costs little the second time, because its decoder then gets only idle CPU time.
  func shouldRestart(after error: CodecError) -> Bool {
    guard case .crashed = error, wasReused, !isSecondAttempt else { return false }
    isSecondAttempt = true
    return true
  }

  /// Ends the decoder because of a protocol violation.
  func protocolViolation(_ what: String) -> CodecError { handleLoss(.protocolViolation(what)) }

  /// Finishes the image and returns its decoder to the pool.
  /// - Parameter isImageDiscarded: whether the decoder has already discarded the image.
  func finish(isImageDiscarded: Bool) {
    guard let process else { return }
    self.process = nil
    release(process, isClean: isImageDiscarded)
  }

  private func withProcess<Value>(
    _ body: (DecoderProcess) throws(DecoderLoss) -> Value
  ) throws(CodecError) -> Value {
    guard let process else { throw .crashed(how: "it had already ended") }
    do throws(DecoderLoss) { return try body(process) } catch { throw handleLoss(error) }
  }

  private func handleLoss(_ loss: DecoderLoss) -> CodecError {
    guard let process else { return .crashed(how: "it had already ended") }
    (self.process, isReplyPending, partialAnswer) = (nil, false, nil)
    wasReused = process.imageCount > 1
    let lost = pool.handleLoss(of: process, loss)
    wasEndless = lost.isEndless
    return lost.error
  }
}

extension DecoderRequest.Step {
  /// The step as allowed for a decoder with these sandbox layers; nil if it is not allowed.
  func permitted(by layers: IsolatedCodec.SandboxLayers) -> Self? {
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
