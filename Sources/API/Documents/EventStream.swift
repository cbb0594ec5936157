internal import HTTP
internal import Jobs

/// The events of a subscription as server-sent events (HTML standard, section 9.2).
///
/// The `id` of an event is the job's version. In a stream of many jobs a version does not show which events a client
/// has missed. After all pending events, such a stream therefore sends a block without an event, whose `id` is a time.
final class EventStream: ContentStream {
  private let subscription: (any JobSubscription)?
  /// The stream's reservation. Released with the stream.
  private let share: Budget.Allocation?
  private let waiting: @Sendable (Job) -> WaitingFor?

  /// - Parameters:
  /// - subscription: nil ends the stream at once, as the response to HEAD needs.
  /// - share: the stream's reservation of a limit.
  /// - waiting: returns what a queued job waits for.
  init(
    _ subscription: (any JobSubscription)?, _ share: Budget.Allocation? = nil,
    waiting: @escaping @Sendable (Job) -> WaitingFor? = { _ in nil }
  ) {
    (self.subscription, self.share) = (subscription, share)
    self.waiting = waiting
  }

  func attach(_ wake: @escaping @Sendable () -> Void) { subscription?.onUpdate(wake) }

  func next() -> StreamPiece {
    switch subscription?.next() {
    case .job(let snapshot, let events)?: .bytes(encode(snapshot, events))
    case .caughtUp(let moment)?:
      .bytes(Array("id: \(LastEventID.until(until: moment).text)\n\n".utf8))
    case .nothing?: .nothingYet
    case .end?, nil: .end
    }
  }

  var keepAlive: KeepAlive? { .comment }
  var mayEndAnywhere: Bool { true }

  /// The service ends the stream, not the client: the job is not cancelled.
  func willAbort() { subscription?.keepJobRunning() }

  private func encode(_ snapshot: JobSnapshot, _ events: [JobEvent]) -> [UInt8] {
    if let waiting = waiting(snapshot.job) {
      return Self.encode(snapshot.document(waiting), of: snapshot, events)
    }
    return snapshot.encoded(events) { Self.encode(snapshot.document(nil), of: snapshot, events) }
  }

  /// - Parameter document: one line; the service's JSON has no line breaks.
  private static func encode(
    _ document: [UInt8], of snapshot: JobSnapshot, _ events: [JobEvent]
  ) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(events.count * (document.count + 64))
    for event in events {
      bytes +=
        "event: \(event.rawValue)\nid: \(LastEventID.version(snapshot.job.version).text)\ndata: "
        .utf8
      bytes += document
      bytes += "\n\n".utf8
    }
    return bytes
  }
}

extension KeepAlive {
  /// A comment in the stream, sent so that proxies do not close an idle connection: at least every 15 s.
  static let comment = KeepAlive(bytes: Array(":\n\n".utf8), interval: .seconds(14))
}

/// `Last-Event-ID`: the last event that a reconnecting client received.
enum LastEventID: Equatable, Sendable {
  /// An event of a job with this version.
  case version(Int)
  /// All events before this time.
  case until(until: Timestamp)

  /// Nil if the field is missing or is not an ID of this service.
  init?(_ field: String?) {
    guard let field, field.utf8.count <= 20, field.utf8.first != UInt8(ascii: "+") else {
      return nil
    }
    if field.hasPrefix(Self.mark), let milliseconds = Int64(field.dropFirst(Self.mark.count)) {
      self = .until(until: Timestamp(milliseconds: max(0, milliseconds)))
    } else if let version = Int(field) {
      self = .version(version)
    } else {
      return nil
    }
  }

  var text: String {
    switch self {
    case .version(let version): "\(version)"
    case .until(let moment): "\(Self.mark)\(moment.milliseconds)"
    }
  }

  private static let mark = "at-"
}
