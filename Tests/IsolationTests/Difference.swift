import Foundation
import Jobs

/// How far others' verdict on a file is from ours.
enum Difference: Hashable {
  /// Both took it, and the pixels are not the same.
  case pixels
  /// Both took it, with other sides.
  case sides
  /// It was taken here alone.
  case taken
  /// It was refused here alone.
  case refused(FailureCode)

  /// Nil: there is none, or nobody could say in time.
  init?(_ judged: Judged) {
    let verdict = judged.verdict
    switch (judged.result, verdict.accepts) {
    case (.success(let image), true):
      if verdict.sides != nil {
        self = .sides
      } else if let worst = verdict.worst, let mean = verdict.mean {
        let tolerance = Tolerance(of: image.format)
        guard worst > tolerance.worst || mean > tolerance.mean else { return nil }
        self = .pixels
      } else {
        self = .pixels
      }
    case (.success, false):
      if verdict.isLate == true { return nil }
      self = .taken
    case (.failure(let error), true): self = .refused(error.code)
    case (.failure, false): return nil
    }
  }

  /// As the lists of Tests/Fixtures have it.
  var word: String {
    switch self {
    case .pixels: "pixels"
    case .sides: "sides"
    case .taken: "taken"
    case .refused(let code): code.rawValue
    }
  }

  /// How far pixels may be from the reference's: the worst channel of any pixel, of 255, and on average.
  struct Tolerance {
    var worst = 0
    var mean = 0.0

    init(of format: ImageFormat) {
      switch format {
      // Exact, but for one step where a profile is followed in another precision.
      case .png: (worst, mean) = (1, 0.01)
      case .webp, .gif, .ico, .avif: break
      // Colours of 5 and 6 bits, and of 16, are rounded here and cut off by Pillow; so are inks.
      case .bmp: (worst, mean) = (1, 1)
      // Brought to RGB from scaled planes here, with a rounding of its own.
      case .jpeg: (worst, mean) = (2, 0.3)
      // Rounded from floating point.
      case .jxl: (worst, mean) = (1, 0.5)
      // Chroma between samples is interpolated here, and repeated by libheif.
      case .heic: (worst, mean) = (48, 5.2)
      }
    }
  }
}
