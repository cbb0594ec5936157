internal import CCodecs
internal import Jobs

/// Owns one C reader of an animation's frames and the bytes that it reads.
final class FrameSource {
  static let formats: Set<ImageFormat> = [.gif, .webp]

  enum Step {
    case notYet
    /// RGBA pixels, and the time the frame is shown, in milliseconds.
    case frame(UnsafePointer<UInt8>, Int)
    case end
  }

  private let bytes: [UInt8]
  private let frames: UnsafeMutablePointer<Frames>
  private let image: ImageDescription
  private var count = 0
  /// The layout of every frame. There is one for all frames, so that the tables of a profile are computed once. Its
  /// bytes live as long as this object.
  private(set) lazy var layout = SampleLayout(
    colours: .RGB, hasAlpha: true, channels: 4,
    planes: [SamplePlane(size: VariantGeometry.Size(width: image.width, height: image.height))],
    profile: UnsafeBufferPointer(start: frames.pointee.icc, count: frames.pointee.icc_count))

  init(_ bytes: [UInt8], _ image: ImageDescription) throws(CodecError) {
    (self.bytes, self.image) = (bytes, image)
    var fault = CodecFault.none
    // The address stays valid, for the reason given in `PixelSource`.
    let start = bytes.withUnsafeBufferPointer { $0.baseAddress }
    let open = image.format == .gif ? gif_frames_open : webp_frames_open
    guard let frames = open(start, bytes.count, CheckedImage(image), &fault) else {
      let held = Int(clamping: frames_memory(UInt32(image.width), UInt32(image.height)))
      throw fault == .tooMuchMemory
        ? .tooMuchMemory(bytes: held, limit: held) : Self.corruptError(for: image)
    }
    self.frames = frames
  }

  deinit { frames.pointee.close(frames) }

  var loops: UInt32 { frames.pointee.loops }

  func next() throws(CodecError) -> Step {
    var pixels: UnsafePointer<UInt8>?
    var milliseconds: UInt32 = 0
    switch frames.pointee.next(frames, &pixels, &milliseconds) {
    case PIXELS_NOT_YET: return .notYet
    case 1:
      count += 1
      guard let pixels, count <= image.frames else { throw Self.corruptError(for: image) }
      return .frame(pixels, Int(milliseconds))
    case 0 where count == image.frames: return .end
    default: throw Self.corruptError(for: image)
    }
  }

  private static func corruptError(for image: ImageDescription) -> CodecError {
    .broken(format: image.format, detail: "not the image decoded before")
  }
}

/// Owns one C writer of animated WebP.
final class AnimationSink {
  private let animation: OpaquePointer
  private let pixels: Int
  private(set) var frames = 0

  init(_ size: VariantGeometry.Size, _ variant: Variant, loops: UInt32) throws(CodecError) {
    let quality = Int32(min(max(1, variant.quality ?? variant.format.writing.defaultQuality), 100))
    let (width, height) = (UInt32(size.width), UInt32(size.height))
    pixels = size.width * size.height
    guard let animation = webp_animation_open(width, height, quality, loops) else {
      let held = webp_animation_memory(width, height)
      throw .tooMuchMemory(bytes: held, limit: held)
    }
    self.animation = animation
  }

  deinit { webp_animation_close(animation) }

  /// The most bytes that a file may have: about one byte a pixel, and at most 64 MiB. Longer files are refused as
  /// useless.
  static func mostBytes(frames: Int, size: VariantGeometry.Size) -> Int {
    min(64 << 20, frames * (size.width * size.height + 4096))
  }

  func add(_ picture: [UInt8], for milliseconds: Int) throws(CodecError) {
    let channels = Int32(picture.count / pixels)
    guard webp_animation_add(animation, picture, channels, UInt32(clamping: milliseconds)) else {
      throw outOfMemoryError
    }
    frames += 1
  }

  /// Returns the complete file.
  func finish() throws(CodecError) -> [UInt8] {
    var count = 0
    let size = VariantGeometry.Size(width: pixels, height: 1)
    guard let start = webp_animation_finish(animation, &count) else { throw outOfMemoryError }
    let most = Self.mostBytes(frames: frames, size: size)
    guard count <= most else { throw .tooMuchMemory(bytes: count, limit: most) }
    return Array(UnsafeBufferPointer(start: start, count: count))
  }

  private var outOfMemoryError: CodecError {
    let held = webp_animation_memory(1, 1)
    return .tooMuchMemory(bytes: held, limit: held)
  }
}
