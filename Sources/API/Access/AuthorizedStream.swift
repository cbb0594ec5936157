internal import HTTP
internal import Synchronization

/// A response stream that ends when its token is no longer valid. Otherwise a client could use a removed token for as
/// long as it keeps its connection open.
///
/// A stream whose normal end would mean "complete" fails instead, so that the client does not mistake it for complete.
final class AuthorizedStream: ContentStream {
  private struct State {
    var isRevoked = false
    var wake: (@Sendable () -> Void)?
  }

  /// The client that opened the stream.
  let identity: Authentication.Identity
  private let stream: any ContentStream
  private let authentication: Authentication
  private let state = Mutex(State())

  init(
    _ stream: any ContentStream, of identity: Authentication.Identity,
    _ authentication: Authentication
  ) {
    (self.stream, self.identity, self.authentication) = (stream, identity, authentication)
  }

  deinit { authentication.removeStream(ObjectIdentifier(self)) }

  func attach(_ wake: @escaping @Sendable () -> Void) {
    state.withLock { $0.wake = wake }
    stream.attach(wake)
  }

  func next() -> StreamPiece {
    guard state.withLock({ $0.isRevoked }) else { return stream.next() }
    return mayEndAnywhere ? .end : .failed
  }

  var keepAlive: KeepAlive? { stream.keepAlive }
  var mayEndAnywhere: Bool { stream.mayEndAnywhere }

  /// Ends the stream at once, even if it has no data to send.
  func revoke() {
    stream.willAbort()
    let wake = state.withLock { state in
      state.isRevoked = true
      return state.wake
    }
    wake?()
  }
}
