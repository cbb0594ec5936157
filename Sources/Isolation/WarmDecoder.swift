internal import Codec
internal import Jobs

/// What each decoder would do for the first time, done once before they are forked: types are looked up, libraries fill their
/// tables, memory is had. Of pictures that are drawn here: no byte of anybody's.
enum WarmDecoder {
  /// A small picture that each decoder decodes before its first one: what a process that was just forked touches is mapped
  /// page by page, which takes as long as a small picture. Written before there is any decoder.
  nonisolated(unsafe) private static var first: [UInt8] = []

  static func prepare() {
    for format in [OutputFormat.jpeg, .png, .webp] {
      var variant = Variant(format: format)
      (variant.width, variant.height) = (48, 32)
      guard let file = file(of: StreamingRenderer().draw(.loading, as: variant)) else { continue }
      if format == .jpeg { first = file }
      var request = VariantRequest(name: "")
      (request.width, request.format) = (24, format)
      guard let image = image(of: file, as: [request]) else { continue }
      variant.width = 20
      _ = self.file(of: StreamingRenderer().render(file, of: image, as: [variant]))
      exchange(image, [request])
    }
  }

  /// Within a decoder, while nobody waits for it yet.
  static func touch() {
    guard let image = image(of: first, as: []) else { return }
    exchange(image, [])
  }

  private static func file(of rendering: any Rendering) -> [UInt8]? {
    do throws(CodecError) {
      while true {
        if let made = try rendering.step() { return try made.first?.get() }
      }
    } catch { return nil }
  }

  private static func image(of file: [UInt8], as requests: [VariantRequest]) -> ImageDescription? {
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits(), variants: requests)
    decoder.append(file)
    decoder.end()
    while let step = try? decoder.step() {
      switch step {
      case .finished(let image): return image
      case .needsBytes: return nil
      case .hasMore, .header: break
      }
    }
    return nil
  }

  /// What a picture is asked and answered with.
  private static func exchange(_ image: ImageDescription, _ requests: [VariantRequest]) {
    var step = DecoderRequest.Step(count: 1, hasEnded: true)
    step.task = .decode(DecodeLimits(), requests)
    var reader = MessageReader(DecoderRequest.step(step).message(number: 1))
    _ = try? reader.integer()
    _ = try? DecoderRequest(&reader)
    var reply = DecoderReply(.decoded(image))
    reply.header = ImageHeader(format: image.format, width: 1, height: 1, decodingMemory: 1)
    _ = reply.message(number: 1)
  }
}
