internal import CCurl

/// The callbacks by which libcurl requests socket events and a timer. Both run on the loop's thread during a
/// call into libcurl, and only record the request.
extension EventLoop {
  func installMultiCallbacks() {
    let context = Unmanaged.passUnretained(self).toOpaque()
    CCurl_multiSetSocketFunction(multi, watchSocket)
    CCurl_multiSetPointer(multi, CURLMOPT_SOCKETDATA, context)
    CCurl_multiSetTimerFunction(multi, setTimer)
    CCurl_multiSetPointer(multi, CURLMOPT_TIMERDATA, context)
    CCurl_multiSetLong(multi, CURLMOPT_MAXCONNECTS, settings.maxIdleConnections)
    CCurl_multiSetLong(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, settings.maxConnections)
    // One transfer per connection at a time, also with HTTP/2. A slow reader then does not block the streams
    // of other transfers, and cancelling a transfer closes its connection.
    CCurl_multiSetLong(multi, CURLMOPT_PIPELINING, Int(CURLPIPE_NOTHING))
  }
}

private func watchSocket(
  _ easy: UnsafeMutableRawPointer?, _ socket: curl_socket_t, _ what: Int32,
  _ context: UnsafeMutableRawPointer?, _: UnsafeMutableRawPointer?
) -> Int32 {
  guard let context else { return 0 }
  let loop = Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
  if let transfer = Transfer.of(easy: easy) {
    if what == CURL_POLL_REMOVE {
      transfer.stopsWaiting(on: socket)
    } else {
      transfer.waits(for: what, on: socket)
    }
  } else {
    // The socket belongs to an internal handle of libcurl, not to a transfer.
    CCurl_watch(loop.epoll, socket, what)
  }
  return 0
}

private func setTimer(
  _: UnsafeMutableRawPointer?, _ milliseconds: Int, _ context: UnsafeMutableRawPointer?
) -> Int32 {
  guard let context else { return 0 }
  let loop = Unmanaged<EventLoop>.fromOpaque(context).takeUnretainedValue()
  loop.curlDeadline = milliseconds < 0 ? nil : .now + .milliseconds(milliseconds)
  return 0
}
