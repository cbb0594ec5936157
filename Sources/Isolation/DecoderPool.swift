internal import CIsolation
internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// The decoder processes. Each works on one image at a time. It is reused for a limited number of images, and
/// replaced after that or when something is wrong with it.
final class DecoderPool: Sendable {
  private struct State {
    var idle: [DecoderProcess] = []
    /// Forked in advance, possibly not ready yet.
    var coming: [DecoderProcess] = []
    var lent = 0
  }

  let configuration: IsolatedCodec.Configuration
  private let zygote: DecoderZygote
  private let log: Logger
  private let state = Mutex(State())

  init(_ configuration: IsolatedCodec.Configuration, log: Logger) {
    self.configuration = configuration
    self.log = log
    zygote = DecoderZygote(program: configuration.program)
    // Creates all counters, so that reasons that have not occurred are reported as 0.
    for reason in DecoderEnd.allCases { endCounter(reason).increment(by: 0) }
  }

  /// The sandbox layers of the decoders, from a real decoder process.
  func layers() throws(DecoderUnavailable) -> IsolatedCodec.SandboxLayers {
    let process = try newProcess()
    defer { storeIdle(process) }
    return process.layers
  }

  func start() throws(DecoderUnavailable) { try zygote.start() }

  /// Returns a decoder for one image. Blocks for about a millisecond if none is idle.
  /// - Parameter isFresh: whether it must not have decoded other images before.
  func borrow(isFresh: Bool) throws(CodecError) -> DecoderProcess {
    let idle = state.withLock { state in
      state.lent += 1
      let place = state.idle.lastIndex { !isFresh || $0.imageCount == 0 }
      return place.map { state.idle.remove(at: $0) }
    }
    if let idle { return idle }
    do throws(DecoderUnavailable) { return try newProcess() } catch {
      decrementBorrowed()
      log.error("no decoder process can be started", metadata: ["error": "\(error)"])
      throw .noDecoder
    }
  }

  /// Whether the number of used decoders has reached ``IsolatedCodec/Configuration/busyThreshold``. Then an
  /// arriving image should wait for more of its bytes.
  var isNearCapacity: Bool { state.withLock { $0.lent >= configuration.busyThreshold } }

  private func decrementBorrowed() { state.withLock { $0.lent -= 1 } }

  private func newProcess() throws(DecoderUnavailable) -> DecoderProcess {
    // If a process forked in advance has failed, try the next one.
    while let process = state.withLock({ $0.coming.popLast() }) {
      if (try? whenReady(process)) != nil { return process }
    }
    return try whenReady(forkProcess())
  }

  private func whenReady(_ process: DecoderProcess) throws(DecoderUnavailable) -> DecoderProcess {
    do throws(DecoderUnavailable) { try process.waitUntilReady() } catch {
      zygote.kill(process)
      throw error
    }
    return process
  }

  private func forkProcess() throws(DecoderUnavailable) -> DecoderProcess {
    let process = try zygote.fork(heap: configuration.maxMemory)
    Counter(label: "imagefetch_decoders_started").increment()
    return process
  }

  /// Takes back a decoder that is ready for a new request.
  func release(_ process: DecoderProcess) {
    decrementBorrowed()
    if process.imageCount < configuration.imagesPerProcess, !process.hasLowPriority {
      process.becomeIdle()
      storeIdle(process)
    } else {
      kill(process, reason: .used)
      forkReplacement()
    }
  }

  private func storeIdle(_ process: DecoderProcess) {
    let isKept = state.withLock { state in
      guard state.idle.count + state.coming.count < configuration.maxIdle else { return false }
      state.idle.append(process)
      return true
    }
    if !isKept { kill(process, reason: .idle) }
  }

  /// Ends a decoder whose image was cancelled in the middle of its work.
  func discard(_ process: DecoderProcess) {
    decrementBorrowed()
    kill(process, reason: .cancelled)
  }

  private func kill(_ process: DecoderProcess, reason end: DecoderEnd) {
    zygote.kill(process)
    endCounter(end).increment()
  }

  private func endCounter(_ end: DecoderEnd) -> Counter {
    Counter(label: "imagefetch_decoders_ended", dimensions: [("reason", end.rawValue)])
  }

  /// Ends a decoder that has failed, and forks a replacement.
  /// - Returns: the error of its image, and whether the decoder ran endlessly.
  func handleLoss(of process: DecoderProcess, _ loss: DecoderLoss) -> (
    error: CodecError, isEndless: Bool
  ) {
    decrementBorrowed()
    let (end, told) = self.endReason(of: process, after: loss)
    endCounter(end).increment()
    guard end != .killed else {
      // No image can cause this, so the image is not blamed.
      log.error("decoder process was killed", metadata: ["how": "\(told)"])
      return (.noDecoder, false)
    }
    if process.imageCount > 1 {
      log.warning("decoder process lost after decoding other images", metadata: ["how": "\(told)"])
    }
    forkReplacement()
    return (.crashed(how: told), end == .time || end == .hung)
  }

  private func endReason(
    of process: DecoderProcess, after loss: DecoderLoss
  ) -> (DecoderEnd, told: String) {
    let end: (DecoderEnd, String)
    switch loss {
    case .died: return Self.endReason(status: zygote.reap(process))
    case .crashed(let number): end = Self.endReason(signal: number)
    case .timedOut: end = (.time, Self.tooLong)
    case .hung: end = (.hung, "it did not respond")
    case .protocolViolation(let what): end = (.lied, "protocol violation: \(what)")
    case .cutOff(let code):
      end = (.killed, "its socket failed: \(String(cString: strerror(code)))")
    }
    zygote.kill(process)
    return end
  }

  private static func endReason(status: Int32?) -> (DecoderEnd, String) {
    guard let status else {
      return (.killed, "its parent process ended, and all decoders with it")
    }
    return switch status & 0x7f {
    case 0:
      switch CIsolation_signal_of_exit(status >> 8) {
      case 0: (.exited, "it exited unexpectedly")
      case let number: endReason(signal: number)
      }
    case SIGSYS: (.forbidden, "a forbidden system call")
    case SIGXCPU: (.time, tooLong)
    case SIGKILL: (.killed, "it was killed, because memory ran out or by an operator")
    case let number: endReason(signal: number)
    }
  }

  private static func endReason(signal: Int32) -> (DecoderEnd, String) {
    (.signal, "signal \(signal), \(String(cString: strsignal(signal)))")
  }

  private static let tooLong = "it exceeded the time for one image"

  /// Forks a decoder in advance for the next image, without waiting for it.
  private func forkReplacement() {
    let isWanted = state.withLock { $0.idle.count + $0.coming.count < configuration.maxIdle }
    // On failure, the next image reports the error.
    guard isWanted, let process = try? forkProcess() else { return }
    state.withLock { $0.coming.append(process) }
  }
}

/// Why a decoder process ended. The raw values are the values of the metric's label.
private enum DecoderEnd: String, CaseIterable {
  case cancelled, exited, forbidden, hung, idle, killed, lied, signal, time, used
}
