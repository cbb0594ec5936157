internal import HTTP
internal import Jobs

/// What a subscription tells, as server-sent events (the HTML standard, section 9.2).
///
/// An event's `id` is the job's version. Where many jobs are told of that says nothing of what a client has missed, so
/// whenever it has been told all, a block without an event gives it the moment as its last event ID.
final class EventStream: ContentStream {
  private let subscription: (any JobSubscription)?
  /// Released with the stream.
  private let share: Budget.Share?
  private let waiting: @Sendable (Job) -> WaitingFor?

  /// - Parameters:
  ///   - subscription: nil ends at once, as an answer to HEAD does.
  ///   - share: what the stream takes of a limit.
  ///   - waiting: what a queued job waits for.
  init(
    _ subscription: (any JobSubscription)?, _ share: Budget.Share? = nil,
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
      .bytes(Array("id: \(LastEventID.told(until: moment).text)\n\n".utf8))
    case .nothing?: .nothingYet
    case .end?, nil: .end
    }
  }

  var keepAlive: KeepAlive? { .comment }
  var endsAnywhere: Bool { true }

  /// Its client has not gone away: no job is cancelled for that.
  func willBreakOff() { subscription?.letJobGoOn() }

  private func encode(_ snapshot: JobSnapshot, _ events: [JobEvent]) -> [UInt8] {
    if let waiting = waiting(snapshot.job) {
      return Self.encode(snapshot.document(waiting), of: snapshot, events)
    }
    return snapshot.encoded(events) { Self.encode(snapshot.document(nil), of: snapshot, events) }
  }

  /// - Parameter document: one line; our JSON has no line breaks.
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
  /// A comment of server-sent events, so that the line is used every 15 s.
  static let comment = KeepAlive(bytes: Array(":\n\n".utf8), interval: .seconds(14))
}

/// `Last-Event-ID`: what a client that was cut off heard last.
enum LastEventID: Equatable, Sendable {
  /// A job of that version.
  case version(Int)
  /// All that happened until then.
  case told(until: Timestamp)

  /// Nil where there is none of ours.
  init?(_ field: String?) {
    guard let field, field.utf8.count <= 20, field.utf8.first != UInt8(ascii: "+") else {
      return nil
    }
    if field.hasPrefix(Self.mark), let milliseconds = Int64(field.dropFirst(Self.mark.count)) {
      self = .told(until: Timestamp(milliseconds: max(0, milliseconds)))
    } else if let version = Int(field) {
      self = .version(version)
    } else {
      return nil
    }
  }

  var text: String {
    switch self {
    case .version(let version): "\(version)"
    case .told(let moment): "\(Self.mark)\(moment.milliseconds)"
    }
  }

  private static let mark = "at-"
}
