/// Content that comes bit by bit, for as long as it lasts: server-sent events, for instance.
///
/// The server pulls. It asks for the next piece whenever the client has room for one, so what a slow
/// client is sent is made as late as possible, and nothing piles up for it. While there is nothing,
/// no thread and no timer is held. Letting go of the stream is all that the server does at its end,
/// whether the client left, the last piece was sent or the server stops.
public protocol ContentStream: AnyObject, Sendable {
  /// Keeps what is to be called, from any thread, when there may be more after ``next()`` gave
  /// `.nothingYet`. Called once, before all else; calling `wake` too often is harmless.
  func attach(_ wake: @escaping @Sendable () -> Void)

  /// What to send next. Called on a thread that serves other connections too: never waits.
  func next() -> StreamPiece

  /// What to send into a silence; nil: nothing, for as long as it lasts.
  var keepAlive: KeepAlive? { get }

  /// Whether it may end anywhere, as events may, behind which others may always come. Of any other its end says that it is
  /// whole: where that is not so, it is broken off.
  var endsAnywhere: Bool { get }

  /// The service, not the server, is about to end it though its client is still there.
  func willBreakOff()
}

extension ContentStream {
  /// To most it makes no difference.
  public func willBreakOff() {}
}

/// What a stream has to send.
public enum StreamPiece: Sendable, Equatable {
  /// Bytes.
  case bytes([UInt8])
  /// Nothing at the moment.
  case nothingYet
  /// Nothing more: the content is whole.
  case end
  /// Nothing more, and the content is not whole: the connection is closed without its end.
  case failed
}

/// Bytes that mean nothing, so that neither side or anyone between takes a silent stream for dead.
public struct KeepAlive: Sendable, Equatable {
  /// What is sent.
  public var bytes: [UInt8]
  /// The longest silence, to which up to a second may come.
  public var interval: Duration

  /// Bytes and the silence before them.
  public init(bytes: [UInt8], interval: Duration) {
    self.bytes = bytes
    self.interval = interval
  }
}
