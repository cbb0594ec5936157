import Foundation
import Jobs

/// How the result of another program differs from ours.
enum Difference: Hashable {
  /// Both accept the file, but the pixels differ.
  case pixels
  /// Both accept the file, but the sides differ.
  case sides
  /// Only our decoder accepts the file.
  case taken
  /// Only our decoder refuses the file.
  case refused(FailureCode)

  /// Nil if there is no difference or the other program took too long.
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

  /// The word for it in the files of Tests/Fixtures.
  var word: String {
    switch self {
    case .pixels: "pixels"
    case .sides: "sides"
    case .taken: "taken"
    case .refused(let code): code.rawValue
    }
  }

  /// The allowed difference from the reference: of the worst channel of any pixel (0 to 255), and on average.
  struct Tolerance {
    var worst = 0
    var mean = 0.0

    init(of format: ImageFormat) {
      switch format {
      // Exact, except for one step if a profile is applied with another precision.
      case .png: (worst, mean) = (1, 0.01)
      case .webp, .gif, .ico, .avif: break
      // Converted to RGB from scaled planes here, with different rounding.
      case .jpeg: (worst, mean) = (2, 0.3)
      // Rounded from floating point.
      case .jxl: (worst, mean) = (1, 0.5)
      // Chroma is interpolated here, but repeated by libheif.
      case .heic: (worst, mean) = (48, 5.2)
      }
    }
  }
}
