import API
import HTTP
import HTTPTypes
import Jobs
import Testing

@Suite("GET /jobs/{id}/preview")
struct PreviewTests {
  let client = Client()
  let preview = Preview(bytes: [1, 2, 3], format: .png, scan: 4)

  private func loading() async throws -> JobID {
    let id = try await client.submitted()
    client.service.change(id) { $0.start(at: $0.createdAt) }
    return id
  }

  @Test("the newest preview is sent with no-store")
  func serves() async throws {
    let id = try await loading()
    client.service.with { $0.previews[id] = preview }
    let answer = await client.get("/jobs/\(id)/preview")
    #expect(answer.status == 200 && answer.bytes == [1, 2, 3])
    #expect(answer.fields[.contentType] == "image/png")
    #expect(answer.fields[HTTPField.Name("Image-Preview")!] == "scan=4")
    #expect(answer.fields[.cacheControl] == "no-store")
    #expect(answer.fields[.xContentTypeOptions] == "nosniff")
    #expect(answer.fields[.contentSecurityPolicy] == imagePolicy)
    let head = await client.send(.head, "/jobs/\(id)/preview")
    #expect(head.status == 200 && head.fields[.contentType] == "image/png")
    #expect(
      await client.get("/jobs/\(id)").json?["links"]?["preview"] == .string("/jobs/\(id)/preview"))
  }

  @Test("a job without a preview is 204")
  func none() async throws {
    for id in [try await client.submitted(), try await loading()] {
      let answer = await client.get("/jobs/\(id)/preview")
      #expect(answer.status == 204 && answer.bytes.isEmpty)
      #expect(answer.fields[.cacheControl] == "no-store")
    }
  }

  @Test("the preview of a successful job is the image")
  func afterwards() async throws {
    let id = try await client.succeeded()
    client.service.with { $0.previews[id] = preview }
    let image = await client.get("/jobs/\(id)/image")
    let answer = await client.get("/jobs/\(id)/preview")
    #expect(answer.bytes == image.bytes)
    for name in [.eTag, .contentType, .lastModified, .acceptRanges] as [HTTPField.Name] {
      #expect(answer.fields[name] != nil && answer.fields[name] == image.fields[name])
    }
    let known: HTTPFields = [.ifNoneMatch: try #require(image.fields[.eTag])]
    #expect(await client.get("/jobs/\(id)/preview", known).status == 304)
    client.service.change(id) { $0.markImageEvicted() }
    #expect(await client.get("/jobs/\(id)/preview").status == 410)
  }

  @Test("the preview of a failed, cancelled or unknown job is 404")
  func unavailable() async throws {
    let failed = try await loading()
    client.service.with { $0.previews[failed] = preview }
    client.service.change(failed) {
      $0.fail(.fetch(.noData), at: $0.createdAt, keptFor: .seconds(9))
    }
    let answer = await client.get("/jobs/\(failed)/preview")
    #expect(answer.status == 404)
    #expect(answer.json?["code"] == .string("image_unavailable"))
    #expect(answer.json?["error"]?["code"] == .string("no_data"))
    let unknown = "0193a0b2-7c1e-7d3a-9f52-1f0c5b6a7d88"
    #expect(await client.get("/jobs/\(unknown)/preview").status == 404)
    #expect(await client.get("/jobs/\(failed)/preview?width=5").status == 422)
    #expect(await client.post("{}", to: "/jobs/\(failed)/preview").status == 405)
  }

  @Test("another owner's preview is 404")
  func others() async throws {
    let client = Client { $0.tokens = [.of("web", [.jobs]), .of("other", [.jobs])] }
    let web: HTTPFields = [.authorization: "Bearer web"]
    let id = try await client.submitted(#"{"url":"http://a/"}"#, web)
    client.service.change(id) { $0.start(at: $0.createdAt) }
    client.service.with { $0.previews[id] = preview }
    #expect(await client.get("/jobs/\(id)/preview", web).status == 200)
    #expect(await client.get("/jobs/\(id)/preview", [.authorization: "Bearer other"]).status == 404)
    #expect(await client.get("/jobs/\(id)/preview").status == 401)
  }

  @Test("a job's JSON has the LQIP of its image")
  func lqip() async throws {
    let id = try await client.succeeded()
    #expect(await client.get("/jobs/\(id)").json?["image"]?["thumbhash"] == .null)
    let image = try #require(client.service.with { $0.jobs[id]?.image })
    let other = try await loading()
    client.service.change(other) { job in
      var image = image
      image.description.lqip = LQIP(
        thumbHash: [255, 0, 16, 4, 1], dominantColor: [0, 10, 255])
      job.succeed(with: image, cache: nil, at: job.createdAt, keptFor: .seconds(9))
    }
    let shown = await client.get("/jobs/\(other)").json?["image"]
    #expect(shown?["thumbhash"] == .string("/wAQBAE="))
    #expect(shown?["dominant_color"] == .string("#000aff"))
  }
}
