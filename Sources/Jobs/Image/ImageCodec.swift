package import Settings

/// Decodes images while their bytes arrive.
package protocol ImageCodec: Sendable {
  /// Returns a decoder for one image. It detects the format from the first bytes.
  /// - Parameter variants: Variants to make during the decode, from the same pixels; their names are ignored.
  ///   They never make the decode fail and never need more than `limits` allow.
  func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder
}

extension ImageCodec {
  /// Returns a decoder that makes no variants.
  package func makeDecoder(limits: DecodeLimits) -> any ImageDecoder {
    makeDecoder(limits: limits, variants: [])
  }
}

/// Decodes one complete image in short steps. Used by one task at a time, on a thread that may compute.
///
/// Call ``append(_:)`` with bytes as they arrive, and ``finishInput()`` after the last. After each of these calls,
/// call ``step()`` until it returns `.needsBytes` or `.finished`.
package protocol ImageDecoder: AnyObject {
  /// Appends bytes. Decodes nothing yet.
  func append(_ bytes: [UInt8])

  /// Marks the end of the bytes.
  func finishInput()

  /// Decodes for at most about 10 ms and returns what to do next. Ignores bytes after the end of the image.
  func step() throws(CodecError) -> DecodeStep

  /// Waits before the next step, so that other tasks can run. A decoder in another process uses this time to
  /// compute; the wait then lasts until it has a result or the task is cancelled.
  /// - Returns: How long the call waited for the other process.
  func pause() async -> Duration

  /// Whether a new preview would show more than the last one.
  var hasMoreToShow: Bool { get }

  /// Starts a preview of what is decoded so far. The next steps compute it before they consume more bytes.
  /// Its memory is included in ``ImageHeader/decodingMemory``. After ``finishInput()`` no preview starts, and one in
  /// progress is discarded.
  func beginPreview()

  /// Returns the finished preview, once. Returns nil if there is none or if making it failed.
  func takePreview() -> Preview?

  /// Discards a preview in progress. The caller promises to start no other one, because ``finishInput()`` follows.
  func discardPreview()

  /// The files of the requested variants, in order, after ``DecodeStep/finished(_:)``. An element is nil if
  /// that variant has to be rendered from the stored image.
  var variants: [[UInt8]?] { get }
}

extension ImageDecoder {
  /// Lets other tasks run, and computes nothing.
  package func pause() async -> Duration {
    await Task.yield()
    return .zero
  }

  /// Previews are for formats that arrive in scans or passes.
  package var hasMoreToShow: Bool { false }
  package func beginPreview() {}
  package func takePreview() -> Preview? { nil }
  package func discardPreview() {}
  package var variants: [[UInt8]?] { [] }
}

/// The result of one step.
package enum DecodeStep: Sendable, Equatable {
  /// The decoder needs more bytes or ``ImageDecoder/finishInput()``.
  case needsBytes
  /// The decoder has lost the bytes, because its process failed. It needs all of them again, from the first one, and
  /// then ``ImageDecoder/finishInput()``. Returned at most once, and only by a decoder in another process.
  case again
  /// The header is valid and within the limits. Returned once, before memory for the pixels is allocated.
  case header(ImageHeader)
  /// Bytes are left to decode: call ``ImageDecoder/step()`` again.
  case hasMore
  /// The image was decoded to its end. Every later call returns this again.
  case finished(ImageDescription)
}

/// The properties in an image's header.
package struct ImageHeader: Sendable, Equatable {
  package var format: ImageFormat
  /// In pixels, as stored.
  package var width: Int
  /// In pixels, as stored.
  package var height: Int
  /// An upper bound for the memory of the decode, in bytes, including variants made during the decode.
  package var decodingMemory: Int

  package init(format: ImageFormat, width: Int, height: Int, decodingMemory: Int) {
    self.format = format
    self.width = width
    self.height = height
    self.decodingMemory = decodingMemory
  }
}

/// The properties of an image that was decoded completely.
package struct ImageDescription: Sendable, Equatable, Codable {
  /// Detected from the bytes, not from the origin's `Content-Type`.
  package var format: ImageFormat
  /// In pixels, as stored in the file.
  package var width: Int
  /// In pixels, as stored in the file.
  package var height: Int
  /// 1 to 8, with the meaning of the EXIF tag 0x0112. For AVIF and HEIC it combines rotation and mirroring;
  /// for JPEG XL it comes from the header. 1 if the file states none.
  package var orientation: Int = 1
  /// Whether it is a progressive JPEG, an interlaced PNG, or a GIF with an interlaced first frame.
  package var isProgressive = false
  /// Whether pixels can be transparent: an alpha channel, a tRNS chunk or a transparent color. For an
  /// animation, also whether its first frame leaves part of the canvas uncovered.
  package var hasAlpha = false
  /// The number of frames; 1 unless animated.
  package var frames: Int = 1
  /// Memory for reading the pixels in addition to what the other properties imply, in bytes. For example, a
  /// JPEG XL may have channels that are not shown. Nil means 0.
  package var extraMemory: Int?
  /// A placeholder to show while the image loads; nil before its pixels were read.
  package var lqip: LQIP?

  /// An upright, opaque image with one frame.
  package init(format: ImageFormat, width: Int, height: Int) {
    self.format = format
    self.width = width
    self.height = height
  }
}

/// The limits of a decode.
package struct DecodeLimits: Sendable, Equatable {
  /// The accepted formats.
  package var formats: Set<ImageFormat>
  /// The limit of width × height.
  package var maxPixels: Int
  /// The limit of the width and of the height, in pixels.
  package var maxDimension: Int
  /// The limit of frames in an animation. All frames together may have ``maxPixels``. Each byte before a
  /// frame adds 1,024 pixels to that, up to sixteen times ``maxPixels``.
  package var maxFrames: Int
  /// The limit of scans in a progressive JPEG.
  package var maxScans: Int
  /// The memory limit of one decode, in bytes.
  package var maxMemory: Int

  /// The configuration's defaults.
  package init(
    formats: Set<ImageFormat> = Set(ImageFormat.allCases), maxPixels: Int = 50_000_000,
    maxDimension: Int = 30_000, maxFrames: Int = 500, maxScans: Int = 100,
    maxMemory: Int = 1 << 30
  ) {
    self.formats = formats
    self.maxPixels = maxPixels
    self.maxDimension = maxDimension
    self.maxFrames = maxFrames
    self.maxScans = maxScans
    self.maxMemory = maxMemory
  }
}

extension DecodeLimits {
  /// The configuration keys of these settings.
  package static let settings: [Setting<DecodeLimits>] = [
    Setting(
      "decode.formats", \.formats, .choices(minimum: 1),
      "Accepted formats."),
    Setting(
      "decode.max_pixels", \.maxPixels, .integer(1...2_000_000_000),
      "Maximum pixels of an image."),
    Setting(
      "decode.max_dimension", \.maxDimension, .integer(1...1_000_000),
      "Maximum width and height of an image."),
    Setting(
      "decode.max_frames", \.maxFrames, .integer(1...100_000),
      "Maximum frames of an animation."),
    Setting(
      "decode.max_scans", \.maxScans, .integer(1...10_000),
      "Maximum scans of a progressive JPEG."),
    Setting(
      "decode.max_memory", \.maxMemory, .size(1...(1 << 40)),
      "Maximum decode memory; jobs wait until they can reserve their part of it."),
  ]
}

/// A low-quality image placeholder: a few bytes from which a page can draw the upright image until it
/// arrives.
package struct LQIP: Sendable, Equatable, Codable {
  /// A ThumbHash: a blurred image with the proportions and the transparency of the original, in 5 to 25
  /// bytes.
  package var thumbHash: [UInt8]
  /// The mean of the most frequent group of colors: red, green, blue, each 0 to 255.
  package var dominantColor: [UInt8]

  package init(thumbHash: [UInt8], dominantColor: [UInt8]) {
    self.thumbHash = thumbHash
    self.dominantColor = dominantColor
  }

  private enum CodingKeys: String, CodingKey { case thumbHash, dominantColor }

  /// Reads the bytes from hexadecimal digits.
  package init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    func bytes(_ key: CodingKeys) throws -> [UInt8] {
      guard let bytes = [UInt8](hexDigits: try container.decode(String.self, forKey: key)) else {
        throw DecodingError.dataCorruptedError(
          forKey: key, in: container, debugDescription: "not hexadecimal")
      }
      return bytes
    }
    (thumbHash, dominantColor) = (try bytes(.thumbHash), try bytes(.dominantColor))
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(thumbHash.hexDigits, forKey: .thumbHash)
    try container.encode(dominantColor.hexDigits, forKey: .dominantColor)
  }
}

/// Stores an image that a client uploads. Used by one task at a time. If the capture is released before it
/// was submitted, its bytes are deleted.
package protocol ImageCapture: AnyObject, Sendable {
  /// Appends bytes. Returns when there is space for more, so that a slow disk slows the client down.
  func write(_ bytes: [UInt8]) async throws(JobsError)

  /// Ends the image. The bytes become durable when the capture is submitted.
  func finish() async throws(JobsError) -> CapturedImage
}

/// The properties of an uploaded image before it is decoded.
package struct CapturedImage: Sendable, Equatable {
  /// The SHA-256 of the bytes.
  package let digest: ImageDigest
  /// The number of bytes; may be 0.
  package let bytes: Int

  package init(digest: ImageDigest, bytes: Int) {
    self.digest = digest
    self.bytes = bytes
  }
}
