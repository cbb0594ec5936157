internal import Codec
internal import Jobs

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
