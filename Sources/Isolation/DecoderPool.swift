internal import CIsolation
internal import Glibc
internal import Jobs
internal import Logging
internal import Metrics
internal import Synchronization

/// Decoder processes: each is lent to one picture at a time, used again for some, and replaced by a fresh one after that, or
/// once anything is wrong with it.
final class DecoderPool: Sendable {
  private struct State {
    var idle: [DecoderProcess] = []
    /// Forked ahead, and perhaps not ready yet.
    var coming: [DecoderProcess] = []
    var lent = 0
    /// Bytes of pictures that are held for other decoders.
    var remembered = 0
  }

  let configuration: IsolatedCodec.Configuration
  private let zygote: DecoderZygote
  private let log: Logger
  private let state = Mutex(State())

  init(_ configuration: IsolatedCodec.Configuration, log: Logger) {
    self.configuration = configuration
    self.log = log
    zygote = DecoderZygote(program: configuration.program)
    // What hasn't happened yet is a zero, not a gap.
    for reason in DecoderEnd.allCases { ended(reason).increment(by: 0) }
  }

  /// What holds the decoders, found out by having one.
  func layers() throws(DecoderUnavailable) -> IsolatedCodec.Layers {
    let process = try fresh()
    defer { keep(process) }
    return process.layers
  }

  func start() throws(DecoderUnavailable) { try zygote.start() }

  /// A decoder for one picture; blocks for about a millisecond where none is idle.
  /// - Parameter isFresh: whether it may not have had others before.
  func borrow(isFresh: Bool) throws(CodecError) -> DecoderProcess {
    let idle = state.withLock { state in
      state.lent += 1
      let place = state.idle.lastIndex { !isFresh || $0.pictures == 0 }
      return place.map { state.idle.remove(at: $0) }
    }
    if let idle { return idle }
    do throws(DecoderUnavailable) { return try fresh() } catch {
      isBack()
      log.error("no decoder process can be started", metadata: ["error": "\(error)"])
      throw .noDecoder
    }
  }

  /// Whether so many are lent that a picture which is still arriving waits for more of its bytes: each is a process.
  var isCrowded: Bool { state.withLock { $0.lent >= configuration.crowd } }

  /// - Returns: whether so many bytes more may be held; to be given up by the same number below 0.
  func remember(_ count: Int) -> Bool {
    state.withLock { state in
      guard count <= configuration.mostRemembered - state.remembered else { return false }
      state.remembered += count
      return true
    }
  }

  private func isBack() { state.withLock { $0.lent -= 1 } }

  private func fresh() throws(DecoderUnavailable) -> DecoderProcess {
    // One that came to nothing is not the last word.
    while let process = state.withLock({ $0.coming.popLast() }) {
      if (try? ready(process)) != nil { return process }
    }
    return try ready(forked())
  }

  private func ready(_ process: DecoderProcess) throws(DecoderUnavailable) -> DecoderProcess {
    do throws(DecoderUnavailable) { try process.meet() } catch {
      zygote.kill(process)
      throw error
    }
    return process
  }

  private func forked() throws(DecoderUnavailable) -> DecoderProcess {
    let process = try zygote.fork(heap: configuration.maxMemory)
    Counter(label: "imagefetch_decoders_started").increment()
    return process
  }

  /// Takes one back that waits for a request.
  func giveBack(_ process: DecoderProcess) {
    isBack()
    if process.pictures < configuration.picturesPerProcess, !process.isPutBack {
      process.becomeIdle()
      keep(process)
    } else {
      end(process, .used)
      replace()
    }
  }

  private func keep(_ process: DecoderProcess) {
    let isKept = state.withLock { state in
      guard state.idle.count + state.coming.count < configuration.mostIdle else { return false }
      state.idle.append(process)
      return true
    }
    if !isKept { end(process, .idle) }
  }

  /// Ends one whose picture nobody wants any more, in the middle of its work.
  func discard(_ process: DecoderProcess) {
    isBack()
    end(process, .cancelled)
  }

  private func end(_ process: DecoderProcess, _ end: DecoderEnd) {
    zygote.kill(process)
    ended(end).increment()
  }

  private func ended(_ end: DecoderEnd) -> Counter {
    Counter(label: "imagefetch_decoders_ended", dimensions: [("reason", end.rawValue)])
  }

  /// Ends one that its picture has lost, and has another take its place.
  /// - Returns: what its picture fails with, and whether it went on for ever.
  func lost(_ process: DecoderProcess, _ loss: DecoderLoss) -> (error: CodecError, isEndless: Bool)
  {
    isBack()
    let (end, told) = self.end(of: process, after: loss)
    ended(end).increment()
    guard end != .killed else {
      // Nothing that runs in a decoder can do that, so it is no picture's doing.
      log.error("a decoder is gone", metadata: ["how": "\(told)"])
      return (.noDecoder, false)
    }
    if process.pictures > 1 {
      log.warning("a decoder was lost that had other images before", metadata: ["how": "\(told)"])
    }
    replace()
    return (.crashed(how: told), end == .time || end == .hung)
  }

  private func end(
    of process: DecoderProcess, after loss: DecoderLoss
  ) -> (DecoderEnd, told: String) {
    let end: (DecoderEnd, String)
    switch loss {
    case .died: return Self.end(zygote.reap(process))
    case .crashed(let number): end = Self.end(by: number)
    case .late: end = (.time, Self.tooLong)
    case .hung: end = (.hung, "no answer")
    case .lied(let what): end = (.lied, "an answer that can't be: \(what)")
    case .cutOff(let code):
      end = (.killed, "its channel failed: \(String(cString: strerror(code)))")
    }
    zygote.kill(process)
    return end
  }

  private static func end(_ status: Int32?) -> (DecoderEnd, String) {
    guard let status else {
      return (.killed, "the process that it was forked from ended, and all others with it")
    }
    return switch status & 0x7f {
    case 0:
      switch CIsolation_signal_of_exit(status >> 8) {
      case 0: (.exited, "it ended by itself")
      case let number: end(by: number)
      }
    case SIGSYS: (.forbidden, "a system call that decoding needs none of")
    case SIGXCPU: (.time, tooLong)
    case SIGKILL: (.killed, "it was killed, by the kernel where memory ran out, or by somebody")
    case let number: end(by: number)
    }
  }

  private static func end(by signal: Int32) -> (DecoderEnd, String) {
    (.signal, "signal \(signal), \(String(cString: strsignal(signal)))")
  }

  private static let tooLong = "more time than an image may take"

  /// Has one forked ahead of the next picture, without waiting for it.
  private func replace() {
    let isWanted = state.withLock { $0.idle.count + $0.coming.count < configuration.mostIdle }
    // Where there is none to be had, the next picture finds that out.
    guard isWanted, let process = try? forked() else { return }
    state.withLock { $0.coming.append(process) }
  }
}

/// Why a decoder process is no more, as metrics have it.
private enum DecoderEnd: String, CaseIterable {
  case cancelled, exited, forbidden, hung, idle, killed, lied, signal, time, used
}
