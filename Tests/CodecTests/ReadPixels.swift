import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

typealias OpenPixels =
  @convention(c) (
    UnsafePointer<UInt8>?, Int, CheckedImage, UInt32, UInt32, UnsafeMutablePointer<CodecFault>?
  ) -> UnsafeMutablePointer<Pixels>?

/// The RGBA pixels from a reader, with all transparent pixels set to 0.
struct ReadPixels {
  var width = 0, height = 0
  var profile: [UInt8] = []
  var rgba: [UInt8] = []
  var fault = CodecFault.none

  /// Requests `rows` rows at once, with gaps between them.
  /// - Parameter image: the description from an earlier decode; nil means to decode the file here.
  init(
    _ file: [UInt8], as image: ImageDescription? = nil, by open: OpenPixels,
    min: (UInt32, UInt32) = (0, 0), rows: Int = 5
  ) {
    guard let checked = image ?? Decoding(file).description else {
      fault = .broken
      return
    }
    file.withUnsafeBufferPointer { bytes in
      let pixels = open(
        bytes.baseAddress, bytes.count, CheckedImage(checked), min.0, min.1, &fault)
      guard let pixels else { return }
      defer { pixels.pointee.close(pixels) }
      width = Int(pixels.pointee.width)
      height = Int(pixels.pointee.height)
      profile = Array(
        UnsafeBufferPointer(start: pixels.pointee.icc, count: pixels.pointee.icc_count))
      read(pixels, rows: rows)
    }
  }

  private mutating func read(_ pixels: UnsafeMutablePointer<Pixels>, rows: Int) {
    let channels = Int(pixels.pointee.channels)
    let stride = width * channels + 3
    var block = [UInt8](repeating: 0xAA, count: stride * rows)
    while true {
      let count = pixels.pointee.rows(pixels, &block, stride, Int32(rows))
      if count == PIXELS_NOT_YET { continue }
      guard count > 0 else {
        if count < 0 { fault = .broken }
        return
      }
      for row in 0..<Int(count) {
        for column in 0..<width {
          let start = row * stride + column * channels
          let alpha = channels % 2 == 0 ? block[start + channels - 1] : 255
          let colours =
            channels < 3
            ? Array(repeating: block[start], count: 3) : Array(block[start..<start + 3])
          rgba += alpha == 0 ? [0, 0, 0, 0] : colours + [alpha]
        }
        #expect(block[row * stride + width * channels] == 0xAA)
      }
    }
  }

  /// Used for comparisons with other readers.
  func shown(orientation: Int) -> ShownPixels {
    ShownPixels(width: width, height: height, orientation: orientation, pixels: rgba)
  }
}

extension CheckedImage {
  init(_ image: ImageDescription) {
    self.init(
      width: UInt32(image.width), height: UInt32(image.height), has_alpha: image.hasAlpha,
      is_progressive: image.isProgressive, frames: UInt64(image.frames),
      extra_memory: UInt64(image.extraMemory ?? 0))
  }
}

extension ImageFormat {
  /// The function that opens a reader of its pixels.
  var openPixels: OpenPixels? {
    switch self {
    // The decoder itself returns the pixels.
    case .jpeg, .png: nil
    case .webp: webp_pixels_open
    case .gif: gif_pixels_open
    case .avif: avif_pixels_open
    case .jxl: jxl_pixels_open
    case .heic: heic_pixels_open
    case .ico: ico_pixels_open
    }
  }
}
