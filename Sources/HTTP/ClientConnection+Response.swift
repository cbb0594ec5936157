internal import CMicroHTTPD
import Glibc
import HTTPTypes
internal import Synchronization

/// Passes responses to libmicrohttpd. Everything here runs on its thread for the connection.
extension ClientConnection {
  /// Queues a response before the content has been read. libmicrohttpd then closes the connection.
  func respondEarly(_ response: Response) -> MHD_Result {
    state.withLock { $0.timing.stage = .answer }
    lingers = true
    return queue(response)
  }

  /// Queues a response for sending.
  func queue(_ response: Response) -> MHD_Result {
    step = .answered
    keeping = response.retained
    guard let answer = create(response.content) else { return .NO }
    defer { MHD_destroy_response(answer) }
    for field in response.fields where !Self.isFramingField(field.name) {
      // libmicrohttpd refuses a name or value that would split the header section.
      _ = field.name.rawName.withCString { name in
        field.value.withCString { MHD_add_response_header(answer, name, $0) }
      }
    }
    // Close the connection after a chunked request. libmicrohttpd accepts line ends in chunks that a proxy
    // may not (RFC 9112, section 7.1). Content that the proxy read could otherwise become a second request
    // here (request smuggling).
    if service.isDraining || slot == .probe || isChunked {
      MHD_add_response_header(answer, "Connection", "close")
    }
    return MHD_queue_response(handle, UInt32(response.status.code), answer)
  }

  /// Whether the field controls framing, so that a handler must not set it. libmicrohttpd itself refuses
  /// `Content-Length`.
  private static func isFramingField(_ name: HTTPField.Name) -> Bool {
    // Comparing lengths first is enough for most names.
    switch name.rawName.utf8.count {
    case 10: name == .connection
    case 17: name == .transferEncoding
    default: false
    }
  }

  private func create(_ content: Response.Content) -> OpaquePointer? {
    switch content {
    case .none: return MHD_create_response_from_buffer(0, nil, .RESPMEM_PERSISTENT)
    case .bytes(let bytes):
      sending = content
      // The array's storage does not move while `sending` keeps it unchanged, until libmicrohttpd reports the
      // end of the request.
      let buffer = bytes.withUnsafeBytes { UnsafeMutableRawPointer(mutating: $0.baseAddress) }
      return MHD_create_response_from_buffer(bytes.count, buffer, .RESPMEM_PERSISTENT)
    case .file(let descriptor, let offset, let count, _):
      guard count > 0 else { return create(.none) }
      // libmicrohttpd closes the descriptor that it receives. It therefore gets a duplicate, which stays
      // valid when the owner is released.
      let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
      guard copy >= 0 else { return nil }
      return MHD_create_response_from_fd_at_offset64(UInt64(count), copy, UInt64(offset))
    case .omitted(let count):
      // libmicrohttpd takes the length from the response and calls no reader for HEAD and 304.
      let response = MHD_create_response_from_callback(
        count.map { UInt64($0) } ?? .max, 1024, StreamWriter.reader, nil, nil)
      // Without a length libmicrohttpd would announce chunks and send the last one even after HEAD (RFC 9112
      // section 6.3).
      if count == nil, let response { CMicroHTTPD_sendUnframed(response) }
      return response
    case .stream where isHead: return create(.omitted(count: nil))
    case .stream(let stream):
      let writer = Unmanaged.passRetained(StreamWriter(stream, on: self))
      // The block size matters only for HTTP/1.0 clients: chunks are built in the connection's own memory.
      guard
        let response = MHD_create_response_from_callback(
          .max, 1024, StreamWriter.reader, writer.toOpaque(), StreamWriter.free)
      else {
        writer.release()
        return nil
      }
      return response
    }
  }
}
