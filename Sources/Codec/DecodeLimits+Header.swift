internal import CCodecs
internal import Jobs

extension DecodeLimits {
  /// Judges a picture by its header, before anything of its size is allocated.
  func check(_ header: ImageHeader) throws(CodecError) {
    let (width, height) = (header.width, header.height)
    guard max(width, height) <= maxDimension else {
      throw .dimensionTooLarge(width: width, height: height, limit: maxDimension)
    }
    // Both sides have 32 bits at the most, so this does not overflow.
    guard width * height <= maxPixels else {
      throw .tooManyPixels(width: width, height: height, limit: maxPixels)
    }
    guard header.decodingMemory <= maxMemory else {
      throw .tooMuchMemory(bytes: header.decodingMemory, limit: maxMemory)
    }
  }

  /// Judges a picture by what its smallest variant takes, where that is more than decoding it: it is held whole, and of
  /// what depth it is nobody remembers. One that is let in has variants.
  /// - Parameter fileBytes: held beside that.
  func checkVariants(of image: ImageDescription, fileBytes: Int) throws(CodecError) {
    let needed = StreamingRenderer().memory(for: Self.smallest, from: image) + fileBytes
    guard needed <= max(maxMemory, Self.leastForVariants) else {
      throw .tooMuchMemory(bytes: needed, limit: maxMemory)
    }
  }

  private static let smallest: Variant = {
    var variant = Variant(format: .png)
    (variant.width, variant.height) = (1, 1)
    return variant
  }()
  /// With less than this, images of any format may have none.
  private static let leastForVariants = 64 << 20

  /// The pixels that all scans or all frames of a picture may have together: sixteen times those of the largest
  /// picture. Each costs as much as it is large and can be a few bytes in the file.
  private var maxWork: Int {
    let (work, overflow) = maxPixels.multipliedReportingOverflow(by: 16)
    return overflow ? .max : work
  }

  /// The scans that a picture may have.
  func scans(for header: ImageHeader) -> Int {
    min(maxScans, maxWork / max(1, header.width * header.height))
  }

  /// What the frames of an animation may come to. Those of few bytes have no more pixels together than a still picture
  /// may have.
  var frames: CodecFrameLimits {
    CodecFrameLimits(
      count: UInt64(clamping: maxFrames), freePixels: UInt64(clamping: maxPixels),
      maxPixels: UInt64(clamping: maxWork))
  }
}
