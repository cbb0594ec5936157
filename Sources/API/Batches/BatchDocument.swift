internal import HTTP
internal import Jobs
internal import Synchronization

/// The JSON of a batch, with the members in the order of openapi.yaml, and the lines of its results.
enum BatchDocument {
  /// Encodes a batch. Its rate and ETA are computed for `moment`.
  static func encode(_ batch: Batch, at moment: Timestamp) -> [UInt8] {
    var writer = JSONWriter()
    write(batch, at: moment, to: &writer)
    return writer.bytes
  }

  /// Encodes a batch of an earlier request with the same idempotency key that has been deleted since.
  static func encode(gone id: BatchID) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      json.member("id", id.description)
      json.member("state", "gone")
    }
    return writer.bytes
  }

  /// Encodes one page of `GET /batches`.
  static func encode(page: [Batch], nextCursor: String?, at moment: Timestamp) -> [UInt8] {
    var writer = JSONWriter(capacity: 1024 * (page.count + 1))
    writer.object { json in
      json.key("batches")
      json.array(page) { write($1, at: moment, to: &$0) }
      json.member("next_cursor", nextCursor)
    }
    return writer.bytes
  }

  private static func write(_ batch: Batch, at moment: Timestamp, to writer: inout JSONWriter) {
    let id = batch.id.description
    writer.object { json in
      json.member("id", id)
      json.member("name", batch.name)
      json.member("state", batch.state.rawValue)
      json.key("tags")
      json.array(batch.tags) { $0.string($1) }
      json.member("received", batch.received)
      json.key("counts")
      batch.shownCounts.write(to: &json)
      json.key("codes")
      json.object { codes in
        for (code, count) in batch.counts.codes { codes.member(code.rawValue, count) }
      }
      json.member("bytes", batch.counts.bytes)
      json.member("rate", rounded(batch.rate(at: moment)))
      json.member("eta", batch.eta(at: moment).map(rounded))
      json.member("version", batch.revision)
      json.member("created_at", batch.createdAt.description)
      json.member("finished_at", batch.finishedAt?.description)
      json.member("expires_at", batch.expiresAt?.description)
      json.key("links")
      json.object { links in
        links.member("self", "/batches/\(id)")
        links.member("jobs", "/jobs?batch=\(id)")
        links.member("results", "/batches/\(id)/results")
        links.member("events", "/batches/\(id)/events")
      }
    }
  }

  /// Rounds to one decimal.
  private static func rounded(_ value: Double) -> Double { (value * 10).rounded() / 10 }

  /// Writes one line of the results.
  static func write(_ line: BatchResults.Line, to writer: inout JSONWriter) {
    writer.object { json in
      switch line {
      case .job(let job, let line):
        json.member("line", line)
        json.member("url", job.submission.shownURL)
        json.member("job", job.id.description)
        json.member("phase", job.phase.rawValue)
        json.key("image")
        if let image = job.image {
          image.write(of: job.id.description, .full, to: &json)
        } else {
          json.null()
        }
        json.key("error")
        if let failure = job.failure { failure.write(to: &json) } else { json.null() }
      case .rejected(let rejected):
        json.member("line", rejected.line)
        json.member("url", rejected.url)
        json.member("job", nil as String?)
        json.member("phase", "rejected")
        json.key("image")
        json.null()
        json.key("error")
        rejected.write(to: &json)
      }
    }
  }
}

extension Batch {
  /// The strong entity tag. It covers all members except the rate and the ETA.
  var entityTag: String { "\"\(revision)\"" }
}

extension BatchCounts {
  fileprivate func write(to writer: inout JSONWriter) {
    writer.object { json in
      json.member("queued", self[.queued])
      json.member("loading", self[.loading])
      json.member("success", self[.success])
      json.member("failure", self[.failure])
      json.member("cancelled", self[.cancelled])
      json.member("rejected", rejected)
    }
  }
}

extension Submission {
  /// The URL or the name of the local image.
  fileprivate var shownURL: String? {
    switch source {
    case .url(let url, _): url.string
    case .local(let name): name
    case .captured: nil
    }
  }
}

extension RejectedLine {
  /// Writes the error in the form of a failed job's error.
  fileprivate func write(to writer: inout JSONWriter) {
    let code = ProblemCode(name: code) ?? .request(.invalidOption)
    writer.object { json in
      json.member("type", code.type)
      json.member("title", code.row.title)
      json.member("detail", detail)
      json.member("code", code.name)
      json.member("retryable", false)
      json.member("origin_status", nil as Int?)
    }
  }
}

/// The changes of a batch as server-sent events: at most two per second; the final state is always sent.
final class BatchEventStream: ContentStream {
  private static let interval = Duration.milliseconds(500)

  private struct State {
    /// The revision that the client has; nil: none.
    var seen: Int?
    /// The newest event that is not sent yet.
    var ready: [UInt8] = []
    var hasBegun = false
    var hasEnded = false
    var following: Task<Void, Never>?
    var wake: (@Sendable () -> Void)?
  }

  private let state: Mutex<State>
  private let batch: BatchID
  private let service: any JobService

  init(_ batch: BatchID, seen: Int?, _ service: any JobService) {
    state = Mutex(State(seen: seen))
    (self.batch, self.service) = (batch, service)
  }

  deinit { state.withLock { $0.following }?.cancel() }

  func attach(_ wake: @escaping @Sendable () -> Void) { state.withLock { $0.wake = wake } }

  var keepAlive: KeepAlive? { .comment }
  var mayEndAnywhere: Bool { true }

  func next() -> StreamPiece {
    let (piece, begins) = state.withLock { state -> (StreamPiece, Bool) in
      if !state.ready.isEmpty {
        defer { state.ready = [] }
        return (.bytes(state.ready), false)
      }
      if state.hasEnded { return (.end, false) }
      defer { state.hasBegun = true }
      return (.nothingYet, !state.hasBegun)
    }
    if begins { startFollowing() }
    return piece
  }

  private func startFollowing() {
    let following = Task { [weak self, changes = service.follow(batch)] in
      for await batch in changes {
        guard self?.publish(batch) == true else { return }
        // If the batch changes during this pause, the stream of changes keeps the newest state.
        try? await Task.sleep(for: Self.interval)
      }
      self?.update([], seen: nil, hasEnded: true)
    }
    state.withLock { $0.following = following }
  }

  /// - Returns: whether more events may follow.
  private func publish(_ batch: Batch?) -> Bool {
    guard let batch else {
      update([], seen: nil, hasEnded: true)
      return false
    }
    let isOver = batch.state.isOver && !batch.isCancelling
    let isNew = state.withLock { $0.seen != batch.revision }
    guard isNew || isOver else { return true }
    var bytes: [UInt8] = []
    if isNew {
      bytes += "event: batch\nid: \(batch.revision)\ndata: ".utf8
      bytes += BatchDocument.encode(batch, at: service.now())
      bytes += "\n\n".utf8
    }
    update(bytes, seen: batch.revision, hasEnded: isOver)
    return !isOver
  }

  /// - Parameter bytes: if empty, the event that is ready stays.
  private func update(_ bytes: [UInt8], seen: Int?, hasEnded: Bool) {
    let wake = state.withLock { state in
      if !bytes.isEmpty { state.ready = bytes }
      (state.seen, state.hasEnded) = (seen, hasEnded)
      return state.wake
    }
    wake?()
  }
}
