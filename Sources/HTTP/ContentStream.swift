/// A response's content that is produced over time, for example server-sent events.
///
/// The server pulls: it requests the next piece when the client can receive it, so nothing accumulates for a
/// slow client. A stream without data uses no thread and no timer. When the stream is over, the server only
/// releases it. This happens when the client disconnects, when the last piece was sent, and when the server
/// stops.
package protocol ContentStream: AnyObject, Sendable {
  /// Stores a function to call, from any thread, when ``next()`` returned `.nothingYet` and may now return
  /// more. The server calls `attach` once, before anything else. Extra calls of `wake` are harmless.
  func attach(_ wake: @escaping @Sendable () -> Void)

  /// Returns the next piece to send. It must not block: its thread serves other connections, too.
  func next() -> StreamPiece

  /// What to send when the stream is silent for some time; nil: nothing.
  var keepAlive: KeepAlive? { get }

  /// Whether the stream may end at any point, like an event stream. Any other stream is aborted if it must
  /// end early, because a normal end would tell the client that the content is complete.
  var mayEndAnywhere: Bool { get }

  /// Called before the service ends the stream although its client is still connected.
  func willAbort()
}

extension ContentStream {
  /// Does nothing.
  package func willAbort() {}
}

/// The result of asking a stream for its next piece.
package enum StreamPiece: Sendable, Equatable {
  case bytes([UInt8])
  /// Nothing at the moment.
  case nothingYet
  /// The content is complete.
  case end
  /// The content is incomplete and ends here. The connection is closed without the terminating chunk.
  case failed
}

/// Bytes without meaning, sent so that neither side nor a proxy closes a silent stream.
package struct KeepAlive: Sendable, Equatable {
  package var bytes: [UInt8]
  /// The longest silence. It may last up to one second longer.
  package var interval: Duration

  package init(bytes: [UInt8], interval: Duration) {
    self.bytes = bytes
    self.interval = interval
  }
}
