/// Why an image is rejected.
package enum CodecError: Error, Sendable, Equatable, Codable {
  /// The format is not accepted. `name` is the detected format ("GIF", "PSD"), nil if the bytes are of no
  /// known format.
  case unsupportedFormat(name: String?)
  /// Width × height exceeds the limit.
  case tooManyPixels(width: Int, height: Int, limit: Int)
  /// The width or the height exceeds the limit.
  case dimensionTooLarge(width: Int, height: Int, limit: Int)
  /// The image has more scans than the limit.
  case tooManyScans(limit: Int)
  /// The number of frames, or of their pixels, exceeds the limit.
  case tooManyFrames(limit: Int)
  /// The decode would need more memory than one image may use.
  case tooMuchMemory(bytes: Int, limit: Int)
  /// The bytes end before the last pixel.
  case cutShort
  /// The bytes violate the format; `detail` is the library's message.
  case broken(format: ImageFormat, detail: String)
  /// The decoder process ended, was killed or violated its protocol; `how` says which.
  case crashed(how: String)
  /// No decoder process could be started. This is a fault of the service.
  case noDecoder
}

extension CodecError: ExplainedError {
  package var explanation: Explanation {
    switch self {
    case .unsupportedFormat(let name?):
      Explanation(
        .unsupportedFormat,
        "The file is \(Self.withArticle(name)), which is not supported.")
    case .unsupportedFormat(nil):
      Explanation(.unsupportedFormat, "The bytes are not an image of a known format.")
    case .tooManyPixels(let width, let height, let limit):
      Explanation(
        .tooManyPixels, "The image has \(width) × \(height) pixels, more than \(limit).",
        reason: "pixels")
    case .dimensionTooLarge(let width, let height, let limit):
      Explanation(
        .tooManyPixels,
        "The image has \(width) × \(height) pixels: a side is longer than \(limit).",
        reason: "dimensions")
    case .tooManyScans(let limit):
      Explanation(
        .tooManyPixels, "The image has more than \(limit) scans.", reason: "scans")
    case .tooManyFrames(let limit):
      Explanation(
        .tooManyPixels,
        "The image has too many frames, by number or by pixels. The limit is \(limit).",
        reason: "frames")
    case .tooMuchMemory(let bytes, let limit):
      Explanation(
        .tooManyPixels,
        "Decoding the image needs \(bytes) bytes of memory, more than \(limit).",
        reason: "memory")
    case .cutShort: Explanation(.decodeFailed, "The image ends before its last pixel.")
    case .broken(let format, let detail):
      Explanation(
        .decodeFailed, "The image is not valid \(format.rawValue): \(detail).")
    case .crashed(let how):
      Explanation(.decoderCrashed, "The decoder process failed: \(how).")
    case .noDecoder: .fault(log: "no decoder process is available")
    }
  }

  /// Format names that are not images.
  private static let others: Set = [
    "7z", "AVI", "ELF", "FLAC", "Flash", "HTML", "JSON", "MP3", "MP4", "MPEG", "Matroska", "Ogg",
    "PDF", "PostScript", "QuickTime", "RAR", "RIFF", "WAV", "WOFF", "XML", "ZIP", "Zstandard",
    "bzip2", "gzip", "xz",
  ]

  private static func withArticle(_ name: String) -> String {
    if others.contains(name) { return name }
    let isAn = "AEIO".contains(name.prefix(1)) || ["MNG", "SVG", "XCF"].contains(name)
    return "\(isAn ? "an" : "a") \(name) image"
  }
}
