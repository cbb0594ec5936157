public import Jobs

/// Stores bytes behind URLs that were signed for that: whoever gave a job one can't be asked for anything else.
public struct PresignedUpload: Sendable {
  private let sender: CurlSender
  /// Between tries, up to a half longer.
  private static let waits: [Duration] = [.milliseconds(400), .seconds(2)]

  /// - Parameter sender: whose policy says where clients may have something sent.
  public init(_ sender: CurlSender) { self.sender = sender }

  /// Puts bytes behind a URL, in three tries where that may help. A redirect is a refusal.
  ///
  /// - Parameters:
  ///   - owner: for whom; nil: for the service itself.
  ///   - headers: fields that the URL was signed with; a `Content-Type` among them is in the place of `contentType`.
  /// - Returns: the entity tag that they have there, if it was told.
  public func put(
    _ content: StoredBytes, as contentType: String, to url: SourceURL, for owner: Owner? = nil,
    headers: [HeaderField]
  ) async throws(DeliveryError) -> String? {
    for wait in Self.waits {
      do throws(DeliveryError) {
        return try await once(content, contentType, url, owner, headers)
      } catch {
        guard error.isPassing, !Task.isCancelled else { throw error }
      }
      do { try await Task.sleep(for: wait * .random(in: 1...1.5)) } catch { throw .cancelled }
    }
    return try await once(content, contentType, url, owner, headers)
  }

  private func once(
    _ content: StoredBytes, _ contentType: String, _ url: SourceURL, _ owner: Owner?,
    _ headers: [HeaderField]
  ) async throws(DeliveryError) -> String? {
    var fields = headers
    for (name, value) in [("Content-Type", contentType), ("Accept", "*/*")]
    where !RequestFields.contain(name.lowercased(), in: headers) {
      fields.append(HeaderField(name: name, value: value))
    }
    let request = OutgoingRequest(
      .put, url, for: owner, fields: fields,
      content: OutgoingContent(count: content.count) { content.read(at: $0, count: $1) },
      // A megabyte a second, and what a stall is has a limit of its own.
      timeout: .seconds(60 + content.count >> 20), maxBytes: 65_536)
    let head: ResponseHead
    do throws(FetchError) { head = try await sender.head(of: request) } catch {
      throw error == .cancelled ? .cancelled : .unreachable(to: url.authority, error)
    }
    guard 200...299 ~= head.status else {
      throw .refused(to: url.authority, status: head.status, code: nil)
    }
    return head.fields.first { $0.name.lowercased() == "etag" }?.value.prefix(bytes: 256)
  }
}
