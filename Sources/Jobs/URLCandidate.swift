/// Which of a submission's URLs is asked.
public enum URLCandidate: Sendable, Hashable, Initial {
  /// The `url`.
  case regular
  /// The `low_data_url`, in the place of `url`.
  case lowData
  /// One of the `alternatives`, by its place.
  case alternative(Int)

  /// Of most jobs, always.
  public static let initial = URLCandidate.regular
}

extension Submission {
  /// The target's URL; nil for other sources than URLs, and where there is no such URL.
  public func url(of target: URLCandidate) -> SourceURL? {
    guard case .url(let regular, let lowData) = source else { return nil }
    switch target {
    case .regular: return regular
    case .lowData: return lowData
    case .alternative(let place):
      return alternatives.indices.contains(place) ? alternatives[place] : nil
    }
  }
}

extension URLCandidate {
  /// Whether a try begins with it.
  var isFirst: Bool {
    switch self {
    case .regular, .lowData: true
    case .alternative: false
    }
  }

  /// What is tried when this one failed; nil after the last.
  package func next(in submission: Submission) -> URLCandidate? {
    let place =
      switch self {
      case .regular, .lowData: 0
      case .alternative(let place): place + 1
      }
    return submission.alternatives.indices.contains(place) ? .alternative(place) : nil
  }
}
