internal import CMicroHTTPD
import Glibc
import HTTPTypes
internal import Synchronization

/// Handing answers to libmicrohttpd. All on its thread.
extension Connection {
  /// Answers before the content has come. libmicrohttpd closes the connection after it.
  func answerEarly(_ response: Response) -> MHD_Result {
    state.withLock { $0.timing.stage = .answer }
    lingers = true
    return queue(response)
  }

  /// Queues an answer for sending.
  func queue(_ response: Response) -> MHD_Result {
    step = .answered
    keeping = response.keeping
    guard let answer = create(response.content) else { return .NO }
    defer { MHD_destroy_response(answer) }
    for field in response.fields where !Self.isOurs(field.name) {
      // A name or value that would split the header section does not pass here.
      _ = field.name.rawName.withCString { name in
        field.value.withCString { MHD_add_response_header(answer, name, $0) }
      }
    }
    // RFC 9112, section 7.1: libmicrohttpd takes ends of lines in chunks that another reader before it might not, and would
    // take for a second request what that one took for content.
    if service.isDraining || place == .probe || isChunked {
      MHD_add_response_header(answer, "Connection", "close")
    }
    return MHD_queue_response(handle, UInt32(response.status.code), answer)
  }

  /// Whether libmicrohttpd frames by this field: it refuses Content-Length itself, but takes the
  /// others.
  private static func isOurs(_ name: HTTPField.Name) -> Bool {
    // Most names are told by their length alone.
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
      // An array's elements stay where they are as long as it is kept unchanged, which `sending`
      // does until libmicrohttpd says that the request is over.
      let buffer = bytes.withUnsafeBytes { UnsafeMutableRawPointer(mutating: $0.baseAddress) }
      return MHD_create_response_from_buffer(bytes.count, buffer, .RESPMEM_PERSISTENT)
    case .file(let descriptor, let offset, let count, _):
      guard count > 0 else { return create(.none) }
      // libmicrohttpd closes what it is given; the copy shares the open file, so the owner may go.
      let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
      guard copy >= 0 else { return nil }
      return MHD_create_response_from_fd_at_offset64(UInt64(count), copy, UInt64(offset))
    case .omitted(let count):
      // libmicrohttpd takes the length from the response, and asks the reader for nothing after HEAD and with 304.
      let response = MHD_create_response_from_callback(
        count.map { UInt64($0) } ?? .max, 1024, StreamWriter.reader, nil, nil)
      // Without a length it would announce chunks, and send the last one even after HEAD (RFC 9112 section 6.3).
      if count == nil, let response { CMicroHTTPD_sendUnframed(response) }
      return response
    case .stream where isHead: return create(.omitted(count: nil))
    case .stream(let stream):
      let writer = Unmanaged.passRetained(StreamWriter(stream, on: self))
      // The block is for clients of HTTP/1.0 alone: chunks are made in the connection's own memory.
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
