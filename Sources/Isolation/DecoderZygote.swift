internal import CIsolation
internal import Glibc
internal import Synchronization

/// The process that decoders are forked from: spawned, so that nothing of the service's memory is in it, and small, so that a
/// decoder costs a fraction of a millisecond. It is started anew when it has gone.
final class DecoderZygote: Sendable {
  private struct Life {
    var control: Int32
    var process: pid_t
  }

  private let program: String
  private let life = Mutex<Life?>(nil)

  /// - Parameter program: whose command ``DecoderServer/argument`` serves.
  init(program: String) { self.program = program }

  deinit { life.withLock { end(&$0) } }

  /// Starts it where it isn't there; it becomes ready meanwhile.
  func start() throws(DecoderUnavailable) {
    try life.withLock { life throws(DecoderUnavailable) in _ = try running(&life) }
  }

  /// Has a decoder forked; blocks for about a millisecond.
  func fork(heap: Int) throws(DecoderUnavailable) -> CIsolationDecoder {
    try life.withLock { life throws(DecoderUnavailable) in
      var code: Int32 = 0
      // One that was killed is found out by asking it.
      for _ in 0..<2 {
        let control = try running(&life)
        var decoder = CIsolationDecoder()
        code = CIsolation_fork(control, SharedMemory.count, UInt64(heap), &decoder)
        if code == 0 { return decoder }
        if code != -EAGAIN, code != -ENOMEM { end(&life) }
      }
      throw DecoderUnavailable(code)
    }
  }

  /// Ends a decoder, which may have ended by itself.
  /// - Returns: how, as `waitpid` has it; nil where its parent has gone too.
  func end(_ decoder: pid_t) -> Int32? {
    life.withLock { life in
      guard let control = life?.control else { return nil }
      var status: Int32 = 0
      return CIsolation_end(control, decoder, &status) == 0 ? status : nil
    }
  }

  private func running(_ life: inout Life?) throws(DecoderUnavailable) -> Int32 {
    if let life { return life.control }
    var (control, process): (Int32, pid_t) = (-1, 0)
    let code = CIsolation_spawn(program, DecoderServer.argument, &control, &process)
    guard code == 0 else { throw DecoderUnavailable(code) }
    life = Life(control: control, process: process)
    return control
  }

  /// It ends once its socket is closed, and its decoders with it.
  private func end(_ life: inout Life?) {
    guard let ended = life else { return }
    close(ended.control)
    kill(ended.process, SIGKILL)
    var status: Int32 = 0
    waitpid(ended.process, &status, 0)
    life = nil
  }
}

/// Why no decoder can be had.
struct DecoderUnavailable: Error, CustomStringConvertible {
  let description: String

  init(_ code: Int32) { description = String(cString: strerror(-code)) }
  init(_ description: String) { self.description = description }
}
