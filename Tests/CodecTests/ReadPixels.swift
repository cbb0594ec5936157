import CCodecs
import Jobs
import TestSupport
import Testing

typealias OpenPixels =
  @convention(c) (
    UnsafePointer<UInt8>?, Int, UInt32, UInt32, UnsafeMutablePointer<CodecFault>?
  ) -> UnsafeMutablePointer<Pixels>?

/// What a reader of pixels gave, as RGBA with transparent pixels all 0.
struct ReadPixels {
  var width = 0, height = 0
  var profile: [UInt8] = []
  var rgba: [UInt8] = []
  var fault = CodecFault.none

  /// Asks for `rows` rows at once, with room between them.
  init(_ file: [UInt8], by open: OpenPixels, min: (UInt32, UInt32) = (0, 0), rows: Int = 5) {
    file.withUnsafeBufferPointer { bytes in
      guard let pixels = open(bytes.baseAddress, bytes.count, min.0, min.1, &fault) else { return }
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
          let alpha = channels == 4 ? block[start + 3] : 255
          rgba += alpha == 0 ? [0, 0, 0, 0] : Array(block[start..<start + 3]) + [alpha]
        }
        #expect(block[row * stride + width * channels] == 0xAA)
      }
    }
  }

  /// For comparisons with what else reads pixels.
  func shown(orientation: Int) -> ShownPixels {
    ShownPixels(width: width, height: height, orientation: orientation, pixels: rgba)
  }
}
