/// Selects one of a submission's URLs.
package enum URLCandidate: Sendable, Hashable, Initial {
  /// The `url`.
  case regular
  /// The `low_data_url`, which replaces the `url`.
  case lowData
  /// One of the `alternatives`, by its index.
  case alternative(Int)

  /// The value for most jobs.
  package static let initial = URLCandidate.regular
}

extension Submission {
  /// Returns the selected URL; nil for other sources, and if the submission has no such URL.
  package func url(of target: URLCandidate) -> SourceURL? {
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

  /// Returns the URL to try after this one failed; nil after the last.
  package func next(in submission: Submission) -> URLCandidate? {
    let place =
      switch self {
      case .regular, .lowData: 0
      case .alternative(let place): place + 1
      }
    return submission.alternatives.indices.contains(place) ? .alternative(place) : nil
  }
}
