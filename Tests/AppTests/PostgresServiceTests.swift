import Foundation
import TestSupport
import Testing

@Suite("A service that keeps its jobs in PostgreSQL", .timeLimit(.minutes(15)))
struct PostgresServiceTests {
  @Test("after a kill the service has its jobs and continues them")
  func killed() async throws {
    let database = try TestDatabase(in: .shared)
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    let gate = Gate()
    origin.on("/small.png", .ok(Fixtures.smallPNG))
    origin.on("/filed.png", .ok(Fixtures.filedPNG))
    origin.on("/slow.png", .held(Fixtures.smallPNG, after: 10, by: gate))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = ["IMAGEFETCH_STORAGE_JOBS": database.url]
    let service = try await RunningService(folder: folder, settings: settings)
    var ids: [String: [UInt8]] = [:]
    for (path, bytes) in [("/small.png", Fixtures.smallPNG), ("/filed.png", Fixtures.filedPNG)] {
      let id = try await service.submit(url: origin.url(path))
      #expect(try await service.finished(id)["phase"] as? String == "success")
      ids[id] = bytes
    }
    let slow = try await service.submit(url: origin.url("/slow.png"))
    try await eventually {
      try await service.get("/jobs/\(slow)").json()["phase"] as? String == "loading"
    }
    try await service.kill()
    #expect(!FileManager.default.fileExists(atPath: folder + "/data/jobs.sqlite"))

    gate.open()
    let next = try await RunningService(folder: folder, settings: settings)
    for (id, bytes) in ids {
      #expect(try await next.get("/jobs/\(id)").json()["phase"] as? String == "success")
      #expect(try await Array(next.get("/jobs/\(id)/image").body) == bytes)
    }
    #expect(try await next.finished(slow)["phase"] as? String == "success")
    #expect(try await next.stop() == 0)
    #expect(!next.log.contains(database.server.url(of: "")), "the log has no URL of the database")
  }

  @Test("a database whose images are in another folder is refused")
  func anotherFolder() async throws {
    let database = try TestDatabase(in: .shared)
    let folders = [try RunningService.makeFolder(), try RunningService.makeFolder()]
    defer { for folder in folders { try? FileManager.default.removeItem(atPath: folder) } }
    let settings = ["IMAGEFETCH_STORAGE_JOBS": database.url]
    let service = try await RunningService(folder: folders[0], settings: settings)
    let told = try await serve(database.url, in: folders[1])
    #expect(told.contains("storage.jobs: this database's images are in another folder"), "\(told)")
    #expect(told.hasSuffix("\nstatus 70\n"), "\(told)")
    let beside = try await serve(database.url, in: folders[0])
    #expect(beside.contains("is locked: another service uses this folder"), "\(beside)")
    #expect(try await service.stop() == 0)
  }

  @Test("a new database for a folder with images is refused, and no image is deleted")
  func newDatabase() async throws {
    let (old, new) = (try TestDatabase(in: .shared), try TestDatabase(in: .shared))
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/filed.png", .ok(Fixtures.filedPNG))
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let settings = ["IMAGEFETCH_STORAGE_JOBS": old.url]
    let service = try await RunningService(folder: folder, settings: settings)
    let id = try await service.submit(url: origin.url("/filed.png"))
    #expect(try await service.finished(id)["phase"] as? String == "success")
    #expect(try await service.stop() == 0)
    for _ in 0..<2 {
      let told = try await serve(new.url, in: folder)
      #expect(told.contains("images that this database knows nothing of"), "\(told)")
      #expect(told.hasSuffix("\nstatus 70\n"), "\(told)")
    }
    let next = try await RunningService(folder: folder, settings: settings)
    #expect(try await Array(next.get("/jobs/\(id)/image").body) == Fixtures.filedPNG)
    #expect(try await next.stop() == 0)
  }

  @Test("the password file is read again for each connection, because it may change")
  func password() async throws {
    let database = try TestDatabase(in: .shared)
    let (server, user) = (database.server, PostgresServer.secured)
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    _ = try? server.run("CREATE ROLE \(user) SUPERUSER LOGIN")
    func change(to password: String) throws {
      try server.run("ALTER ROLE \(user) PASSWORD '\(password)'")
      try "\(password)\n".write(toFile: folder + "/password", atomically: true, encoding: .utf8)
    }
    try change(to: "first-of-the-database")
    let settings = [
      "IMAGEFETCH_STORAGE_JOBS": database.url.replacing("//imagefetch@", with: "//\(user)@"),
      "IMAGEFETCH_STORAGE_JOBS_PASSWORD_FILE": folder + "/password",
    ]
    let service = try await RunningService(folder: folder, settings: settings)
    try change(to: "second-of-the-database")
    let lost = try server.run(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '\(user)'")
    #expect(lost.contains("t"))
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    origin.on("/small.png", .ok(Fixtures.smallPNG))
    let body = try JSONSerialization.data(withJSONObject: ["url": origin.url("/small.png")])
    var id = ""
    try await eventually {
      let answer = try await service.send(
        "POST", "/jobs", headers: ["Content-Type": "application/json"], body: body)
      id = answer.status == 202 ? try answer.json()["id"] as? String ?? "" : ""
      return id != ""
    }
    #expect(try await service.finished(id)["phase"] as? String == "success")
    #expect(try await service.stop() == 0)
  }

  @Test("an unreachable server is reported at the start, without the password")
  func unreachable() async throws {
    let folder = try RunningService.makeFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let told = try await serve("postgresql://anna:open-sesame@127.0.0.1:1/x", in: folder)
    #expect(told.contains("storage.jobs: PostgreSQL can't be reached: "), "\(told)")
    #expect(told.contains("port 1") && told.hasSuffix("\nstatus 70\n"), "\(told)")
    #expect(!told.contains("internal fault"), "\(told)")
    #expect(!told.contains("sesame"), "\(told)")
  }

  private func serve(_ url: String, in folder: String) async throws -> String {
    try await Shell.run(
      """
      IMAGEFETCH_SERVER_PORT=0 IMAGEFETCH_STORAGE_PATH='\(folder)/data' IMAGEFETCH_STORAGE_JOBS='\(url)' \
        '\(RunningService.executable)' serve 2>&1
      echo "status $?"
      """, in: "/")
  }
}
