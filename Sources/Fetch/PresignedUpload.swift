package import Jobs

/// Uploads bytes to presigned URLs. The signature allows only this one upload, so the service needs no
/// credentials.
package struct PresignedUpload: Sendable {
  private let sender: CurlSender
  /// The waits between attempts. A random part of up to a half is added.
  private static let waits: [Duration] = [.milliseconds(400), .seconds(2)]

  /// - Parameter sender: Its address policy decides where clients may upload to.
  package init(_ sender: CurlSender) { self.sender = sender }

  /// Uploads bytes to a URL with PUT. Makes up to three attempts if the error may be temporary. A redirect
  /// counts as a refusal.
  ///
  /// - Parameters:
  ///   - owner: The owner of the job. Nil: the service itself.
  ///   - headers: Fields that the URL was signed with. A `Content-Type` among them replaces `contentType`.
  /// - Returns: The `ETag` of the response, if it has one.
  package func put(
    _ content: StoredBytes, as contentType: String, to url: SourceURL, for owner: Owner? = nil,
    headers: [HeaderField]
  ) async throws(DeliveryError) -> String? {
    for wait in Self.waits {
      do throws(DeliveryError) {
        return try await putOnce(content, contentType, url, owner, headers)
      } catch {
        guard error.isPassing, !Task.isCancelled else { throw error }
      }
      do { try await Task.sleep(for: wait * .random(in: 1...1.5)) } catch { throw .cancelled }
    }
    return try await putOnce(content, contentType, url, owner, headers)
  }

  private func putOnce(
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
      // The timeout assumes at least 1 MiB/s. The stall timeout detects a transfer without progress earlier.
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
