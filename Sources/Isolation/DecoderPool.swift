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
    // What hasn't happened yet is a zero, not a gap.
    for reason in Self.reasons { ended(reason).increment(by: 0) }
  }

  private static let reasons = [
    "cancelled", "exited", "forbidden", "hung", "idle", "killed", "lied", "signal", "time", "used",
  ]

  deinit { for process in state.withLock({ $0.idle }) { zygote.kill(process) } }

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

  private func isBack() { state.withLock { $0.lent -= 1 } }

  private func fresh() throws(DecoderUnavailable) -> DecoderProcess {
    let process = try zygote.fork(heap: configuration.maxMemory)
    Counter(label: "imagefetch_decoders_started").increment()
    return process
  }

  /// Takes one back that waits for a request.
  func giveBack(_ process: DecoderProcess) {
    isBack()
    if process.pictures < configuration.picturesPerProcess, !process.isPutBack {
      keep(process)
    } else {
      end(process, "used")
    }
  }

  private func keep(_ process: DecoderProcess) {
    let isKept = state.withLock { state in
      guard state.idle.count < configuration.mostIdle else { return false }
      state.idle.append(process)
      return true
    }
    if !isKept { end(process, "idle") }
  }

  /// Ends one whose picture nobody wants any more, in the middle of its work.
  func discard(_ process: DecoderProcess) {
    isBack()
    end(process, "cancelled")
  }

  private func end(_ process: DecoderProcess, _ reason: String) {
    zygote.kill(process)
    count(reason)
  }

  private func count(_ reason: String) { ended(reason).increment() }

  private func ended(_ reason: String) -> Counter {
    Counter(label: "imagefetch_decoders_ended", dimensions: [("reason", reason)])
  }

  /// Ends one that its picture has lost, and has another take its place: the wait for that is this picture's, not the next
  /// one's.
  /// - Returns: what is told of it.
  func lost(_ process: DecoderProcess, _ loss: DecoderLoss) -> CodecError {
    isBack()
    let end: (reason: String, told: String)
    switch loss {
    case .late:
      zygote.kill(process)
      end = ("time", Self.tooLong)
    case .hung:
      zygote.kill(process)
      end = ("hung", Self.noAnswer)
    case .lied(let what):
      zygote.kill(process)
      end = ("lied", "an answer that can't be: \(what)")
    case .died:
      guard let status = zygote.reap(process) else {
        log.error("the process that decoders are forked from is gone, and its decoders with it")
        count("killed")
        return .noDecoder
      }
      end = Self.end(status)
    }
    count(end.reason)
    if process.pictures > 1 {
      log.warning(
        "a decoder was lost that had other images before", metadata: ["how": "\(end.told)"])
    }
    replace()
    return .crashed(how: end.told)
  }

  private func replace() {
    let isWanted = state.withLock { $0.idle.count < configuration.mostIdle }
    // Where there is none to be had, the next picture finds that out.
    if isWanted, let process = try? fresh() { keep(process) }
  }

  private static let tooLong = "more time than an image may take"
  private static let noAnswer = "no answer"

  /// Whether one that ended so had been waited for.
  static func isEndless(_ how: String) -> Bool { how == tooLong || how == noAnswer }

  private static func end(_ status: Int32) -> (reason: String, told: String) {
    switch status & 0x7f {
    case 0: ("exited", "it ended by itself")
    case SIGSYS: ("forbidden", "a system call that decoding needs none of")
    case SIGXCPU: ("time", tooLong)
    case SIGKILL: ("killed", "killed")
    case let number: ("signal", "signal \(number), \(String(cString: strsignal(number)))")
    }
  }
}
