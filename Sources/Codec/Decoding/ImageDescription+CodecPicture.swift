internal import CCodecs
internal import Jobs

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
