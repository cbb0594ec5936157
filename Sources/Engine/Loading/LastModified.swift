internal import Jobs

extension FetchedResponse {
  /// When the origin says that it last changed the image (RFC 9110 section 8.8.2); nil where it doesn't say, or says
  /// what can't be read.
  func lastModified(now: Timestamp) -> Timestamp? {
    headers.last { $0.name.lowercased() == "last-modified" }
      .flatMap { Timestamp(httpDate: $0.value, now: now) }
  }
}
