/// The counts of a run, and their texts.
struct Totals: Equatable {
  var saved = 0
  var skipped = 0
  var failed = 0
  /// Jobs that were cancelled at the end of the run.
  var cancelled = 0
  /// The bytes of saved images.
  var bytes = 0

  var done: Int { saved + skipped + failed }

  mutating func count(_ outcome: Outcome) {
    switch outcome {
    case .saved(let image):
      saved += 1
      bytes += image.bytes
    case .skipped: skipped += 1
    case .failed: failed += 1
    }
  }

  /// Returns the text for a run in progress.
  /// - Parameters:
  ///   - total: The number of URLs; nil while it is unknown because a list is still being read.
  ///   - rate: Bytes per second.
  func progress(
    total: Int?, running: Int, rate: Double, elapsed: Duration
  ) -> String {
    var parts = counts
    if let total, total > 1 { parts[0] = "\(done) of \(total): " + parts[0] }
    parts.append("\(running) running")
    let pace = JobLine.pace(rate)
    if !pace.isEmpty { parts.append(pace) }
    if let rest = remaining(total: total, elapsed: elapsed) {
      parts.append("\(Self.time(rest)) left")
    }
    return parts.joined(separator: ", ")
  }

  /// Returns the text for a finished run.
  func summary(elapsed: Duration) -> String {
    var parts = counts
    if bytes > 0 { parts[0] += " (\(JobLine.amount(bytes)))" }
    return parts.joined(separator: ", ") + ", \(Self.time(elapsed))"
  }

  private var counts: [String] {
    ["\(saved) saved"] + (skipped > 0 ? ["\(skipped) skipped"] : []) + ["\(failed) failed"]
      + (cancelled > 0 ? ["\(cancelled) cancelled"] : [])
  }

  /// Returns the estimated time left at the current pace. Skipped URLs are not part of the pace. Nil while
  /// there is no pace yet.
  func remaining(total: Int?, elapsed: Duration) -> Duration? {
    let fetched = saved + failed
    guard let total, total > done, fetched > 0, elapsed >= .seconds(2) else { return nil }
    let seconds = (elapsed / .seconds(1)) / Double(fetched) * Double(total - done)
    return seconds < 1e9 ? .seconds(seconds) : nil
  }

  /// Formats a duration in its two largest units: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
  static func time(_ duration: Duration) -> String {
    let seconds = max(0, duration / .seconds(1))
    if seconds < 9.95 {
      let tenths = Int((seconds * 10).rounded())
      return "\(tenths / 10).\(tenths % 10) s"
    }
    let whole = Int(seconds.rounded())
    if whole < 60 { return "\(whole) s" }
    if whole < 3600 { return "\(whole / 60) min \(whole % 60) s" }
    return "\(whole / 3600) h \(whole / 60 % 60) min"
  }
}
