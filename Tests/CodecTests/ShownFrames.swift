import CCodecs
import Jobs
import TestSupport

/// The composed frames of an animation.
struct ShownFrames {
  /// The RGBA pixels of the whole canvas, and the duration.
  typealias Frame = (pixels: [UInt8], milliseconds: UInt32)

  var frames: [Frame] = []

  /// Nil if the file is no image or its frames can't be read.
  init?(_ file: [UInt8]) {
    guard let image = Decoding(file).description else { return nil }
    let open = image.format == .gif ? gif_frames_open : webp_frames_open
    var fault = CodecFault.none
    let isWhole = file.withUnsafeBufferPointer { bytes in
      let source = open(bytes.baseAddress, bytes.count, CheckedImage(image), &fault)
      guard let source else { return false }
      defer { source.pointee.close(source) }
      while true {
        var (pixels, milliseconds) = (UnsafePointer<UInt8>?.none, UInt32(0))
        switch source.pointee.next(source, &pixels, &milliseconds) {
        case PIXELS_NOT_YET: continue
        case 1:
          let count = 4 * image.width * image.height
          frames.append((Array(UnsafeBufferPointer(start: pixels, count: count)), milliseconds))
        case 0: return true
        default: return false
        }
      }
    }
    guard isWhole else { return nil }
  }
}
