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

  deinit { for process in state.withLock({ $0.idle }) { _ = zygote.end(process.id) } }

  /// What holds the decoders, found out by having one.
  func layers() throws(DecoderUnavailable) -> IsolatedCodec.Layers {
    let process = try fresh()
    defer { keep(process) }
    return process.layers
  }

  func start() throws(DecoderUnavailable) { try zygote.start() }

  /// A decoder for one picture; blocks for about a millisecond where none is idle.
  func borrow() throws(CodecError) -> DecoderProcess {
    do throws(DecoderUnavailable) {
      let idle = state.withLock { $0.idle.popLast() }
      let process = if let idle { idle } else { try fresh() }
      process.beginPicture(seconds: Int(configuration.maxTime.components.seconds))
      return process
    } catch {
      log.error("no decoder process can be started", metadata: ["error": "\(error)"])
      throw .noDecoder
    }
  }

  private func fresh() throws(DecoderUnavailable) -> DecoderProcess {
    let decoder = try zygote.fork(heap: configuration.maxMemory)
    Counter(label: "imagefetch_decoders_started").increment()
    return try DecoderProcess(decoder)
  }

  /// Takes one back that waits for a request.
  func giveBack(_ process: DecoderProcess) {
    if process.pictures < configuration.picturesPerProcess {
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
  func discard(_ process: DecoderProcess) { end(process, "cancelled") }

  private func end(_ process: DecoderProcess, _ reason: String) {
    _ = zygote.end(process.id)
    count(reason)
  }

  private func count(_ reason: String) { ended(reason).increment() }

  private func ended(_ reason: String) -> Counter {
    Counter(label: "imagefetch_decoders_ended", dimensions: [("reason", reason)])
  }

  /// Ends one that its picture has lost.
  /// - Returns: what is told of it.
  func lost(_ process: DecoderProcess, _ loss: DecoderLoss) -> CodecError {
    // Whatever ended it did so before its socket was closed: this doesn't.
    let end = Self.end(loss, status: zygote.end(process.id))
    count(end.reason)
    return .crashed(how: end.told)
  }

  private static func end(_ loss: DecoderLoss, status: Int32?) -> (reason: String, told: String) {
    switch loss {
    case .hung: return ("hung", "no answer")
    case .lied(let what): return ("lied", "an answer that can't be: \(what)")
    case .died: break
    }
    guard let status, status & 0x7f != 0 else { return ("exited", "it ended by itself") }
    return switch status & 0x7f {
    case SIGSYS: ("forbidden", "a system call that decoding needs none of")
    case SIGXCPU: ("time", "more time than an image may take")
    case SIGKILL: ("killed", "killed")
    case let number: ("signal", "signal \(number), \(String(cString: strsignal(number)))")
    }
  }
}
