internal import Engine
internal import Jobs
internal import Settings

/// Reads the operator's placeholder images. They are validated with the same limits as images from origins.
enum PlaceholderFile {
  /// Reads the files that `placeholders` names.
  ///
  /// - Throws: `.operatorMistake` if a file can't be read or decoded.
  static func images(
    _ configuration: Configuration, by codec: any ImageCodec
  ) throws(StartError) -> [Placeholder: PlaceholderImage] {
    var pictures: [Placeholder: PlaceholderImage] = [:]
    let files: [(Placeholder, String?)] = [
      (.loading, configuration.placeholders.loading),
      (.failure, configuration.placeholders.failure),
    ]
    for case (let placeholder, let path?) in files {
      pictures[placeholder] = try image(
        path, key: "placeholders.\(placeholder.rawValue)", configuration, codec)
    }
    return pictures
  }

  private static func image(
    _ path: String, key: String, _ configuration: Configuration, _ codec: any ImageCodec
  ) throws(StartError) -> PlaceholderImage {
    let bytes: [UInt8]
    switch FileText.read(path, limit: configuration.engine.maxBytes, isPlain: true) {
    case .wrong(let why): throw .operatorMistake("\(key): \"\(path)\" \(why)")
    case .bytes(let read): bytes = read
    }
    do throws(CodecError) {
      return PlaceholderImage(
        bytes: bytes, description: try decoded(bytes, configuration.engine.limits, codec))
    } catch {
      throw .operatorMistake("\(key): \"\(path)\" can't be shown: \(error)")
    }
  }

  private static func decoded(
    _ bytes: [UInt8], _ limits: DecodeLimits, _ codec: any ImageCodec
  ) throws(CodecError) -> ImageDescription {
    let decoder = codec.makeDecoder(limits: limits)
    decoder.append(bytes)
    decoder.finishInput()
    while true {
      switch try decoder.step() {
      case .again:
        decoder.append(bytes)
        decoder.finishInput()
      case .finished(let description): return description
      case .needsBytes: throw .cutShort
      case .header(let header):
        // Check the memory before the decoder allocates it.
        guard header.decodingMemory <= limits.maxMemory else {
          throw .tooMuchMemory(bytes: header.decodingMemory, limit: limits.maxMemory)
        }
      case .hasMore: continue
      }
    }
  }
}
