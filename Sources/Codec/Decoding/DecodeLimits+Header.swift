internal import CCodecs
internal import Jobs

extension DecodeLimits {
  /// Checks an image's header against the limits, before any memory of the image's size is allocated.
  func check(_ header: ImageHeader) throws(CodecError) {
    let (width, height) = (header.width, header.height)
    guard max(width, height) <= maxDimension else {
      throw .dimensionTooLarge(width: width, height: height, limit: maxDimension)
    }
    // Both sides have at most 32 bits, so this does not overflow.
    guard width * height <= maxPixels else {
      throw .tooManyPixels(width: width, height: height, limit: maxPixels)
    }
    guard header.decodingMemory <= maxMemory else {
      throw .tooMuchMemory(bytes: header.decodingMemory, limit: maxMemory)
    }
  }

  /// Checks the memory of the smallest possible variant, for formats where this is more than decoding takes: they are
  /// read whole, and the bit depth is not stored. An image that passes can always get variants.
  /// - Parameter fileBytes: bytes of the file, which are in memory at the same time.
  func checkVariantMemory(of image: ImageDescription, fileBytes: Int) throws(CodecError) {
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
  /// The check never refuses images that need less than this, even if `maxMemory` is smaller.
  private static let leastForVariants = 64 << 20

  /// The most pixels in all scans or all frames of an image together: 16 times `maxPixels`. A scan or frame can be
  /// only a few bytes in the file, but costs as much time as its pixels.
  private var maxWork: Int {
    let (work, overflow) = maxPixels.multipliedReportingOverflow(by: 16)
    return overflow ? .max : work
  }

  /// How many scans an image with this header may have.
  func scans(for header: ImageHeader) -> Int {
    min(maxScans, maxWork / max(1, header.width * header.height))
  }

  /// Limits for the frames of an animation. If the file is short, all frames together may have no more pixels than a
  /// still image.
  var frames: CodecFrameLimits {
    CodecFrameLimits(
      count: UInt64(clamping: maxFrames), freePixels: UInt64(clamping: maxPixels),
      maxPixels: UInt64(clamping: maxWork))
  }
}

extension ImageHeader {
  init(_ picture: CodecImageInfo, format: ImageFormat) {
    self.init(
      format: format, width: Int(picture.width), height: Int(picture.height),
      decodingMemory: Int(clamping: picture.decodingMemory))
  }
}

extension ImageDescription {
  init(_ picture: CodecImageInfo, format: ImageFormat) {
    self.init(format: format, width: Int(picture.width), height: Int(picture.height))
    orientation = picture.orientation
    frames = max(1, Int(clamping: picture.frames))
    lqip = Thumbnail(picture)?.lqip
    isProgressive = picture.isProgressive
    hasAlpha = picture.hasAlpha
    extraMemory = picture.extraMemory > 0 ? Int(clamping: picture.extraMemory) : nil
  }
}

extension CodecImageInfo {
  /// The orientation in the container, or else in the EXIF block as far as it was read. 1 if there is none.
  var orientation: Int {
    if containerOrientation > 0 { return Int(containerOrientation) }
    return EXIFOrientation.read(UnsafeBufferPointer(start: exif, count: exifCount)) ?? 1
  }
}

extension CodecError {
  /// Converts a reader's fault to the error that the job reports.
  init(
    _ fault: CodecFault, of reader: any ImageReader, format: ImageFormat, limits: DecodeLimits
  ) {
    let (width, height) = (Int(reader.properties.width), Int(reader.properties.height))
    // A library's message may quote bytes of the image. `DecoderReply` accepts only plain texts.
    let plain = reader.message.unicodeScalars.filter {
      (" "..."~").contains($0) && $0 != "\"" && $0 != "\\"
    }
    let message = String(String.UnicodeScalarView(plain))
    switch fault {
    case .cutShort:
      self = .cutShort
    case .unsupported:
      self = .unsupportedFormat(name: "\(format.name) (\(message))")
    case .tooLarge:
      // The library's own limit (JPEG_MAX_DIMENSION).
      let limit = min(limits.maxDimension, 65_500)
      self = .dimensionTooLarge(width: width, height: height, limit: limit)
    case .tooManyScans:
      let header = ImageHeader(reader.properties, format: format)
      self = .tooManyScans(limit: limits.scans(for: header))
    case .tooManyFrames:
      self = .tooManyFrames(limit: Int(clamping: reader.properties.maxFrames))
    case .frameTooLarge:
      self = .tooManyPixels(
        width: Int(reader.properties.frameWidth), height: Int(reader.properties.frameHeight),
        limit: limits.maxPixels)
    case .tooMuchMemory:
      self = .tooMuchMemory(
        bytes: max(Int(clamping: reader.properties.decodingMemory), limits.maxMemory),
        limit: limits.maxMemory)
    case .none, .broken:
      self = .broken(format: format, detail: message)
    }
  }
}
