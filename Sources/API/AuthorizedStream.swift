internal import HTTP
internal import Synchronization

/// A stream that ends once its request would be let in to the same no longer, broken off where its end would say that it is
/// whole: else a token that was taken away would be good for as long as its holder keeps the connection.
final class AuthorizedStream: ContentStream {
  private struct State {
    var isRevoked = false
    var wake: (@Sendable () -> Void)?
  }

  /// Who asked for it.
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

  deinit { authentication.forget(ObjectIdentifier(self)) }

  func attach(_ wake: @escaping @Sendable () -> Void) {
    state.withLock { $0.wake = wake }
    stream.attach(wake)
  }

  func next() -> StreamPiece {
    guard state.withLock({ $0.isRevoked }) else { return stream.next() }
    return endsAnywhere ? .end : .failed
  }

  var keepAlive: KeepAlive? { stream.keepAlive }
  var endsAnywhere: Bool { stream.endsAnywhere }

  /// Ends it, however silent it is.
  func revoke() {
    stream.willBreakOff()
    let wake = state.withLock { state in
      state.isRevoked = true
      return state.wake
    }
    wake?()
  }
}
