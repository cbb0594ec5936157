/// Decodes images while their bytes arrive.
public protocol ImageCodec: Sendable {
  /// A decoder for one image whose format its first bytes tell.
  /// - Parameter variants: to be made on the way, of the same pixels; what they are called means nothing. They never
  ///   make a decode fail, nor need more than `limits` allow.
  func makeDecoder(limits: DecodeLimits, variants: [VariantRequest]) -> any ImageDecoder
}

extension ImageCodec {
  /// A decoder that makes no variants.
  public func makeDecoder(limits: DecodeLimits) -> any ImageDecoder {
    makeDecoder(limits: limits, variants: [])
  }
}

/// Decodes one image to its end, in slices: used by one task at a time, on a thread that may compute.
///
/// Call ``append(_:)`` with bytes as they come and ``end()`` after the last, and in between ``step()`` until it asks
/// for more.
public protocol ImageDecoder: AnyObject {
  /// Adds bytes that follow those given before; decodes nothing yet.
  func append(_ bytes: [UInt8])

  /// Says that no more bytes will come.
  func end()

  /// Decodes for some 10 ms at the most and tells what to do next. Bytes after the image's end are ignored.
  func step() throws(CodecError) -> DecodeStep

  /// Lets others have a turn before the next step, where there is more to decode. One that computes elsewhere is left to it
  /// for a while, as long as it takes; less where the task is cancelled.
  /// - Returns: for how long that was.
  func pause() async -> Duration

  /// Whether a preview begun now would show more than the last one did.
  var hasMoreToShow: Bool { get }

  /// Begins a preview of what there is: the next steps compute it, before they take more bytes. It counts in
  /// ``ImageHeader/decodingMemory``. Once ``end()`` was called none begins, and one under way is dropped.
  func beginPreview()

  /// The preview that was begun, once it is there; once. Whatever goes wrong with one, there is just none.
  func takePreview() -> Preview?

  /// Ends a preview under way, and says that none will be begun: ``end()`` follows as soon as the last bytes were given.
  func dropPreview()

  /// The files of the variants asked for, in their order, once ``DecodeStep/finished(_:)`` was said; nil for one that
  /// has to be rendered of the image's bytes.
  var variants: [[UInt8]?] { get }
}

extension ImageDecoder {
  /// A turn for each of the others.
  public func pause() async -> Duration {
    await Task.yield()
    return .zero
  }

  /// Previews are for formats that come in scans or passes.
  public var hasMoreToShow: Bool { false }
  /// None is begun.
  public func beginPreview() {}
  /// None.
  public func takePreview() -> Preview? { nil }
  /// None is under way.
  public func dropPreview() {}
  /// None were asked for.
  public var variants: [[UInt8]?] { [] }
}

/// What a decoder says after a slice of work.
public enum DecodeStep: Sendable, Equatable {
  /// Give it more bytes, or say that there are none.
  case needsBytes
  /// The header is read and within the limits; said once, before anything of the image's size is allocated.
  case header(ImageHeader)
  /// There is more to decode already: call again.
  case hasMore
  /// The image was decoded to its end; said again whenever called.
  case finished(ImageDescription)
}

/// What an image's header tells before it is decoded.
public struct ImageHeader: Sendable, Equatable {
  /// Its format.
  public var format: ImageFormat
  /// In pixels, as stored.
  public var width: Int
  /// In pixels, as stored.
  public var height: Int
  /// An upper bound of what decoding it will hold at once, in bytes; with variants that are made on the way.
  public var decodingMemory: Int

  /// A header.
  public init(format: ImageFormat, width: Int, height: Int, decodingMemory: Int) {
    self.format = format
    self.width = width
    self.height = height
    self.decodingMemory = decodingMemory
  }
}

/// What is known of an image once it was decoded whole.
public struct ImageDescription: Sendable, Equatable, Codable {
  /// Told by the bytes, never by the origin's word.
  public var format: ImageFormat
  /// In pixels, as stored in the file.
  public var width: Int
  /// In pixels, as stored in the file.
  public var height: Int
  /// EXIF's tag 0x0112, 1 to 8, or what AVIF's and HEIC's turning and mirroring come to, or JPEG XL's header says; 1 where there is none.
  public var orientation: Int = 1
  /// A progressive JPEG, an interlaced PNG or a GIF whose first frame is interlaced.
  public var isProgressive = false
  /// Whether pixels can be transparent: an alpha channel, a tRNS chunk, a transparent colour; of an animation, also
  /// that its first frame leaves some of the canvas free.
  public var hasAlpha = false
  /// Pictures in it; 1 unless animated.
  public var frames: Int = 1
  /// What reading its pixels holds more than one takes that the above describes, in bytes: a JPEG XL may have channels that
  /// are not shown. Nil: nothing.
  public var extraMemory: Int?
  /// What to paint while it is on its way; nil before its pixels were read.
  public var lqip: LQIP?

  /// An upright, opaque, single picture.
  public init(format: ImageFormat, width: Int, height: Int) {
    self.format = format
    self.width = width
    self.height = height
  }
}

/// The formats that can be decoded.
public enum ImageFormat: String, Sendable, CaseIterable, Codable {
  case jpeg, png, webp, gif, avif, jxl, heic, bmp, ico

  /// Those that are taken where nobody says which.
  public static let usual: [ImageFormat] = [.jpeg, .png, .webp, .gif, .avif, .jxl, .heic]

  /// The media type it is served as.
  public var contentType: String {
    self == .ico ? "image/vnd.microsoft.icon" : "image/\(rawValue)"
  }
  /// The usual ending of a file's name, without the dot.
  public var fileExtension: String { self == .jpeg ? "jpg" : rawValue }
}

/// What a decoder accepts.
public struct DecodeLimits: Sendable, Equatable {
  /// The formats that are let in.
  public var formats: Set<ImageFormat>
  /// Width times height.
  public var maxPixels: Int
  /// Width and height each.
  public var maxDimension: Int
  /// Frames of an animation. Together they may have ``maxPixels``, and 1,024 more for each byte that came before a frame,
  /// up to sixteen times as many.
  public var maxFrames: Int
  /// Scans of a progressive JPEG.
  public var maxScans: Int
  /// Of what one decode holds at once, in bytes.
  public var maxMemory: Int

  /// The configuration's defaults.
  public init(
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

/// Why bytes are not an image that we keep.
public enum CodecError: Error, Sendable, Equatable, Codable {
  /// Not a format that is let in; `name` where it could be told ("GIF", "PSD"), nil where the bytes are no known image's.
  case unsupportedFormat(name: String?)
  /// Width times height over the limit.
  case tooManyPixels(width: Int, height: Int, limit: Int)
  /// One side over the limit.
  case dimensionTooLarge(width: Int, height: Int, limit: Int)
  /// More scans than allowed.
  case tooManyScans(limit: Int)
  /// More frames than allowed, by their number or by their pixels.
  case tooManyFrames(limit: Int)
  /// Decoding it would take more memory than one image may.
  case tooMuchMemory(bytes: Int, limit: Int)
  /// The bytes ended before the last pixel.
  case cutShort
  /// The bytes break their format's rules; `detail` is the library's word for how.
  case broken(format: ImageFormat, detail: String)
  /// The decoder that had them ended, did what it may not, or said what can't be; `how` says which.
  case crashed(how: String)
  /// No decoder could be had; our fault.
  case noDecoder
}
