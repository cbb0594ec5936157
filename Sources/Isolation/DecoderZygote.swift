internal import CIsolation
internal import Codec
internal import Glibc
internal import Jobs
internal import Synchronization

/// The process that forks decoders. It is spawned, so that none of the service's memory is in it, and it is small, so
/// that a fork takes about a millisecond. It is started again if it has ended.
final class DecoderZygote: Sendable {
  private struct ForkServer {
    var control: Int32
    var process: pid_t
    var generation: Int
  }

  private struct State {
    var life: ForkServer?
    var generation = 0
  }

  private let program: String
  private let state = Mutex(State())

  /// - Parameter program: a program whose command ``DecoderServer/argument`` runs a ``DecoderServer``.
  init(program: String) { self.program = program }

  deinit { state.withLock { stop(&$0) } }

  /// Starts the process if it isn't running. Does not wait until it is ready.
  func start() throws(DecoderUnavailable) {
    try state.withLock { state throws(DecoderUnavailable) in _ = try startIfNeeded(&state) }
  }

  /// Forks a decoder without waiting for it.
  func fork(heap: Int) throws(DecoderUnavailable) -> DecoderProcess {
    try state.withLock { state throws(DecoderUnavailable) in
      var code: Int32 = 0
      // If the process was killed, this is noticed only when a request fails.
      for _ in 0..<2 {
        let life = try startIfNeeded(&state)
        var decoder = CIsolationDecoder()
        code = CIsolation_fork(life.control, SharedMemory.count, UInt64(heap), &decoder)
        if code == 0 { return DecoderProcess(decoder, generation: life.generation) }
        guard code == -EPIPE else { break }
        stop(&state)
      }
      throw DecoderUnavailable(code)
    }
  }

  /// Kills a decoder, whatever its state is.
  func kill(_ process: DecoderProcess) {
    state.withLock { state in
      // A decoder without a process ID ends when its socket is closed.
      guard let life = state.life, life.generation == process.generation, process.id > 0
      else { return }
      if CIsolation_kill(life.control, process.id) != 0 { stop(&state) }
    }
  }

  /// Waits for the end of a decoder that has closed its socket.
  /// - Returns: its status as from `waitpid`; nil if its parent has ended too.
  func reap(_ process: DecoderProcess) -> Int32? {
    state.withLock { state in
      guard let life = state.life, life.generation == process.generation else { return nil }
      var status: Int32 = 0
      let code = CIsolation_reap(life.control, process.id, &status)
      if code == -EPIPE { stop(&state) }
      return code == 0 ? status : nil
    }
  }

  private func startIfNeeded(_ state: inout State) throws(DecoderUnavailable) -> ForkServer {
    if let life = state.life { return life }
    var (control, process): (Int32, pid_t) = (-1, 0)
    let code = CIsolation_spawn(program, DecoderServer.argument, &control, &process)
    guard code == 0 else { throw DecoderUnavailable(code) }
    state.generation += 1
    let life = ForkServer(control: control, process: process, generation: state.generation)
    state.life = life
    return life
  }

  /// Ends the process. It exits when its socket is closed, and its decoders exit with it.
  private func stop(_ state: inout State) {
    guard let ended = state.life else { return }
    close(ended.control)
    Glibc.kill(ended.process, SIGKILL)
    var status: Int32 = 0
    waitpid(ended.process, &status, 0)
    Self.reapDecoders(of: ended.process)
    state.life = nil
  }

  /// Reaps the decoders of an ended process. In a container, the first process inherits them and must reap them. They
  /// belong to the process group of their session, and no other child of this process does. Outside a container there
  /// are none.
  private static func reapDecoders(of zygote: pid_t) {
    let patience = ContinuousClock.now + .seconds(1)
    var status: Int32 = 0
    while ContinuousClock.now < patience {
      switch waitpid(-zygote, &status, WNOHANG) {
      case 0: usleep(1_000)
      case -1: return
      default: break
      }
    }
  }
}

/// Why no decoder process is available.
struct DecoderUnavailable: Error, CustomStringConvertible {
  let description: String

  init(_ code: Int32) {
    let words = String(cString: strerror(-code))
    description =
      switch code {
      case -EPIPE: "the decoder process ended during its start"
      case -EAGAIN: "\(words): raise TasksMax or the process limit of the container or user"
      default: words
      }
  }
}

/// Does, before decoders are forked, what each decoder would otherwise do for the first time: type lookups, symbol
/// binding, tables in libraries, memory allocation. It uses images made here, never a client's bytes.
struct WarmDecoder {
  private let memory = UnsafeMutablePointer<UInt8>.allocate(capacity: SharedMemory.count)
  private let server: DecoderRequestHandler
  private var first: [UInt8] = []

  /// Call it once; it lives as long as the process.
  init() {
    server = DecoderRequestHandler(memory: memory)
    CodecLibrary.prepare()
    for format in [OutputFormat.jpeg, .png, .webp] {
      var request = VariantRequest(name: "")
      (request.width, request.format) = (24, format)
      let file = Self.picture(480, 320, format)
      guard case .decoded(let image) = perform(.decode(DecodeLimits(), [request]), on: file) else {
        continue
      }
      request.width = 20
      _ = perform(.render(image, bytes: file.count, [request]), on: file)
    }
    // On ARM64, libaom reads /proc/cpuinfo when it encodes its first image, but decoders cannot open files.
    _ = Self.picture(16, 16, .avif)
    first = Self.picture(48, 32, .jpeg)
  }

  /// Runs in a decoder before its first image. After a fork, each page is mapped at its first use, which would take
  /// as long as a small image.
  func decodeSample() { _ = perform(.decode(DecodeLimits(), []), on: first) }

  private static func picture(_ width: Int, _ height: Int, _ format: OutputFormat) -> [UInt8] {
    var variant = Variant(format: format)
    (variant.width, variant.height) = (width, height)
    variant.fit = .fill
    let seed = PlaceholderImage.builtIn(for: .loading)
    let rendering = StreamingRenderer().render(seed.bytes, of: seed.description, as: variant)
    do throws(CodecError) {
      while true {
        if let made = try rendering.step() { return try made.first?.get() ?? [] }
      }
    } catch { return [] }
  }

  /// Runs a task to its end, like a request of the service.
  private func perform(
    _ task: DecoderRequest.Task, on file: [UInt8]
  ) -> DecoderReply.Outcome? {
    guard file.count <= SharedMemory.halfSize else { return nil }
    memory.update(from: file, count: file.count)
    var step = DecoderRequest.Step(task: task, count: file.count, hasEnded: true)
    while true {
      guard let answer = try? server.reply(toMessage: DecoderRequest.step(step).message(number: 1))
      else {
        return nil
      }
      var reader = MessageReader(answer)
      guard (try? reader.integer()) != nil, let reply = try? DecoderReply(&reader) else {
        return nil
      }
      guard case .hasMore = reply.outcome else { return reply.outcome }
      step = DecoderRequest.Step(hasEnded: true)
    }
  }
}
