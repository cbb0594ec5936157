internal import Jobs

/// Counts of what a move has copied so far.
package struct MoveTotals: Sendable, Equatable {
  /// Counts of one kind of record.
  package struct Counts: Sendable, Equatable {
    /// Moved by this run.
    package var moved = 0
    /// Already in the target, from an earlier run.
    package var found = 0

    mutating func count(_ all: Int, new: Int) {
      moved += new
      found += all - new
    }

    var all: Int { moved + found }
  }

  /// The number of jobs in the source.
  package var expected = 0
  package var jobs = Counts()
  /// Cache entries, including variants.
  package var entries = Counts()
  package var batches = Counts()
  /// Idempotency keys.
  package var keys = Counts()
  /// Webhook messages.
  package var messages = Counts()
  /// Images; equal images count once.
  package var images = Counts()
  /// Records other than jobs that can't be read.
  package var unreadable = 0
  /// Bytes of the images that this run moved.
  package var bytes = 0
  /// Images whose bytes are missing or corrupt. Their jobs and cache entries are moved without them.
  var missing: Set<ImageDigest> = []

  /// Returns the readable records and counts the others as unreadable.
  mutating func readable<Value>(_ all: [Exported<Value>]) -> [Value] {
    let readable = all.compactMap(\.value)
    unreadable += all.count - readable.count
    return readable
  }

  mutating func move(_ bytes: Int) {
    images.moved += 1
    self.bytes += bytes
  }

  /// The progress as one line of text.
  package var progress: String {
    "\(jobs.all) of \(expected) jobs, \(entries.all) cache entries, \(images.moved) images "
      + "(\(size(bytes)))"
  }

  /// The totals as text, one line per kind.
  package var summary: [String] {
    var lines = [
      line("jobs", jobs), line("batches", batches), line("cache entries", entries),
      line("idempotency keys", keys),
      line("webhook messages", messages), line("images", images) + ", \(size(bytes))",
    ]
    if !missing.isEmpty {
      lines.append(
        "images missing or corrupt: \(missing.count); requests for them get image_gone")
    }
    if jobs.all < expected {
      lines.append("jobs that can't be read: \(expected - jobs.all); not moved")
    }
    if unreadable > 0 {
      lines.append("other records that can't be read: \(unreadable); not moved")
    }
    return lines
  }

  private func line(_ name: String, _ things: Counts) -> String {
    "\(name): \(things.moved) moved" + (things.found > 0 ? ", \(things.found) already there" : "")
  }

  private func size(_ bytes: Int) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"]
    var (value, unit) = (Double(bytes), 0)
    while value >= 1_000, unit < units.count - 1 { (value, unit) = (value / 1_000, unit + 1) }
    let tenths = Int((value * 10).rounded())
    return unit == 0 ? "\(bytes) B" : "\(tenths / 10).\(tenths % 10) \(units[unit])"
  }
}
