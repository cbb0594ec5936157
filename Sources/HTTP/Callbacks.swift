internal import CMicroHTTPD
import Glibc

// libmicrohttpd's callbacks. It calls each from the thread that owns the connection. They are global
// functions, as C requires, and must not be isolated to an actor: an isolation check would trap on that
// thread.

/// Called when the request line was read and its target is not yet parsed. The result becomes the request's
/// context.
let requestLineReceived:
  @convention(c) (
    UnsafeMutableRawPointer?, UnsafePointer<CChar>?, OpaquePointer?
  ) -> UnsafeMutableRawPointer? = { _, target, handle in
    guard let handle, let context = CMicroHTTPD_socketContext(handle) else { return nil }
    connection(context).requestLineReceived(target)
    return context
  }

/// Disables percent-decoding of the target: `%00` would cut the path and `%2f` would become a slash.
let disableUnescaping:
  @convention(c) (
    UnsafeMutableRawPointer?, OpaquePointer?, UnsafeMutablePointer<CChar>?
  ) -> Int = { _, _, text in text.map { strlen($0) } ?? 0 }

/// Called for the complete head, then for each piece of content, then for the complete request.
let requestAdvanced: MHD_AccessHandlerCallback = {
  _, _, _, method, version, piece, size, context in
  guard let context = context?.pointee, let size else { return .NO }
  let connection = connection(context)
  switch connection.step {
  case .head:
    guard let method, let version else { return .NO }
    return connection.headReceived(method, version)
  case .gathering, .streaming:
    guard size.pointee > 0 else { return connection.requestCompleted() }
    let (result, taken) = connection.contentReceived(
      UnsafeRawBufferPointer(start: piece, count: size.pointee))
    size.pointee -= taken
    return result
  case .complete: return connection.requestCompleted()
  case .answered:
    size.pointee = 0
    return .YES
  }
}

/// Called when the request is finished or aborted.
let requestEnded: MHD_RequestCompletedCallback = { _, _, context, _ in
  guard let context = context?.pointee else { return }
  connection(context).requestEnded()
}

/// Called when a connection starts, and before it is closed.
let connectionChanged: MHD_NotifyConnectionCallback = { context, handle, socketContext, change in
  guard let context, let handle, let socketContext else { return }
  let monitor = Unmanaged<Monitor>.fromOpaque(context).takeUnretainedValue()
  switch change {
  case .CONNECTION_NOTIFY_STARTED:
    let place = monitor.slot(of: CMicroHTTPD_descriptor(handle))
    let connection = ClientConnection(
      id: monitor.service.nextID(), handle: handle, at: place, service: monitor.service)
    socketContext.pointee = Unmanaged.passRetained(connection).toOpaque()
    monitor.register(connection)
  case .CONNECTION_NOTIFY_CLOSED:
    guard let pointer = socketContext.pointee else { return }
    let connection = Unmanaged<ClientConnection>.fromOpaque(pointer).takeRetainedValue()
    socketContext.pointee = nil
    monitor.unregister(connection)
  }
}

/// Receives a log message of libmicrohttpd, formatted by `CMicroHTTPD_formatMessage`. Most report that a
/// client disconnected.
@_cdecl("imagefetch_http_message")
func receiveMessage(_ context: UnsafeMutableRawPointer, _ text: UnsafePointer<CChar>) {
  Unmanaged<Monitor>.fromOpaque(context).takeUnretainedValue().logLibraryMessage(
    String(cString: text))
}

private func connection(_ context: UnsafeMutableRawPointer) -> ClientConnection {
  Unmanaged<ClientConnection>.fromOpaque(context).takeUnretainedValue()
}
