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

  /// The pixels that all scans or all frames of a picture may have together: sixteen times those of the largest
  /// picture. Each costs as much as it is large and can be a few bytes in the file.
  var maxWork: Int {
    let (work, overflow) = maxPixels.multipliedReportingOverflow(by: 16)
    return overflow ? .max : work
  }

  /// The scans that a picture may have.
  func scans(for header: ImageHeader) -> Int {
    min(maxScans, maxWork / max(1, header.width * header.height))
  }

  /// The frames that an animation may have where each fills it.
  func frames(for header: ImageHeader) -> Int {
    min(maxFrames, maxWork / max(1, header.width * header.height))
  }
}
