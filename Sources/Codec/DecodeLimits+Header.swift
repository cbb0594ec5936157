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

  /// The scans that a picture may have. A scan costs as much as the picture is large and can be a few bytes
  /// in the file, so all of them together visit at most sixteen times the pixels of the largest picture.
  func scans(for header: ImageHeader) -> Int {
    let pixels = max(1, header.width * header.height)
    let (work, overflow) = maxPixels.multipliedReportingOverflow(by: 16)
    return min(maxScans, overflow ? maxScans : work / pixels)
  }
}
