import Foundation
import TestSupport
import Testing

@Suite("The dashboard", .browser, .timeLimit(.minutes(15)))
struct DashboardTests {
  @Test("the page shows a loading job, its preview and its image")
  func submits() async throws {
    try await withDashboard { page in
      let file = Fixtures.progressiveJPEG
      let gate = Gate()
      let end = JPEGFixture(file).scanEnds[2] + 4
      page.origin.on("/cat.jpg", .held(file, after: end, by: gate))
      try await page.browser.type(page.origin.url("/cat.jpg") + "\u{E007}", into: "#urls")
      try await page.sees("is('cat.jpg', 'loading') && shows('cat.jpg')")
      let words = try await page.sees("text(card('cat.jpg').querySelector('.facts'))")
      #expect("\(words)".contains(" of \(Int((Double(file.count) / 1000).rounded())) kB"))
      let share = try await page.sees("card('cat.jpg').querySelector('.bar').ariaValueNow")
      #expect(1...99 ~= Int("\(share)") ?? 0)
      gate.open()
      try await page.sees("is('cat.jpg', 'success') && shows('cat.jpg')")
      try await page.sees("text(card('cat.jpg')).includes('JPEG, 480 × 320')")
      try await page.sees("text($('glance')).includes('1 done')")
      // The details, and the larger image.
      try await page.click("details", of: "cat.jpg")
      try await page.sees("$('details').open && $('details-image').naturalWidth === 480")
    }
  }

  @Test("a job can be cancelled by button and key, and fetched again")
  func cancels() async throws {
    try await withDashboard { page in
      let gate = Gate()
      page.origin.on("/a.png", .held(Fixtures.png, after: 9_000, by: gate))
      try await page.browser.type(page.origin.url("/a.png"), into: "#urls")
      try await page.browser.click(".submit button.main")
      try await page.sees("is('a.png', 'loading') && text(card('a.png')).includes(' of ')")
      try await page.browser.click(".card [data-do=cancel]")
      try await page.sees("is('a.png', 'cancelled')")
      #expect(await page.origin.waitForClose(of: 1) != nil)

      try await page.run("card('a.png').focus()")
      try await page.browser.press("r")
      try await page.sees("is('a.png', 'loading')")
      try await page.browser.press("c")
      try await page.sees("is('a.png', 'cancelled') && document.activeElement === card('a.png')")

      gate.open()
      try await page.browser.click(".card [data-do=again]")
      try await page.sees("is('a.png', 'success') && shows('a.png')")
    }
  }

  @Test("priorities can be changed, and jobs deleted after a confirmation")
  func changes() async throws {
    try await withDashboard(["IMAGEFETCH_FETCH_MAX_PER_HOST": "1"]) { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      page.origin.on("/next.png", .ok(Fixtures.png))
      let urls = ["/held.png", "/next.png"].map { ["url": page.origin.url($0)] }
      let answer = try await page.service.submit(urls).json()
      let id = try #require((answer["jobs"] as? [[String: Any]])?.last?["id"] as? String)
      try await page.sees("is('held.png', 'loading') && is('next.png', 'queued')")
      try await page.run(
        """
        const select = card('next.png').querySelector('.priority');
        select.value = 'very_high';
        select.dispatchEvent(new Event('change', { bubbles: true }));
        """)
      try await eventually {
        try await page.service.get("/jobs/\(id)").json()["priority"] as? String == "very_high"
      }
      try await page.click("cancel", of: "held.png")
      try await page.sees("is('next.png', 'success')")
      try await page.click("forget", of: "next.png")
      try await page.sees("$('confirm').open")
      try await page.browser.click("#confirm-yes")
      try await page.sees("!card('next.png') && card('held.png')")
      #expect(try await page.service.get("/jobs/\(id)").status == 404)
    }
  }

  @Test("the page says why a job failed, who can fix it, and what is wrong with a submission")
  func explains() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      let urls = [page.origin.url("/gone.png"), "http://169.254.169.254/latest"]
      try await page.browser.type(urls.joined(separator: " ") + "\u{E007}", into: "#urls")
      try await page.sees("is('gone.png', 'failure') && is('latest', 'failure')")
      try await page.sees("text(card('gone.png')).includes('The origin responded with 404.')")
      try await page.sees("text(card('gone.png')).includes('Check the URL, or ask')")
      try await page.sees("text(card('latest')).includes('fetch.allow_networks')")
      page.origin.on("/gone.png", .ok(Fixtures.png))
      try await page.browser.click("#show-all")
      try await page.browser.click("#all [data-all=again]")
      try await page.sees("is('gone.png', 'success') && is('latest', 'failure')")
      try await page.run("document.querySelector('.chip[data-phase=cancelled]').click()")
      try await page.sees(
        "cards.length === 0 && text($('nothing')).includes('No job matches the filter')")

      try await page.browser.type("ftp://a/b\u{E007}", into: "#urls")
      try await page.sees(
        "text($('submit-message')).includes('ftp://a/b: Must be an absolute http')")
      #expect(try await page.run("return $('urls').value") as? String == "ftp://a/b")
    }
  }

  @Test("the page accepts chosen, dropped or pasted files and links")
  func takes() async throws {
    try await withDashboard { page in
      page.origin.on("/pasted.png", .ok(Fixtures.png))
      page.origin.on("/dropped.png", .ok(Fixtures.png))
      let file = Readme.root + "Tests/Fixtures/images/photo.jpg"
      try await page.browser.type(file, into: "#files")
      try await page.sees("is('photo.jpg', 'success') && shows('photo.jpg')")

      let bytes = Fixtures.smallPNG.map { Int($0) }
      let transfer = """
        const data = new DataTransfer();
        if (arguments[0]) data.setData('text/plain', arguments[0]);
        if (arguments[1]) {
          data.items.add(new File([new Uint8Array(arguments[1])], arguments[2], { type: 'image/png' }));
        }

        """
      let paste = """
        const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true });
        document.body.dispatchEvent(event);
        """
      let drop = """
        for (const type of ['dragover', 'drop']) {
          document.body.dispatchEvent(
            new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
        }
        """
      try await page.run(transfer + drop, ["", bytes, "one.png"])
      try await page.run(transfer + paste, ["", bytes, "two.png"])
      try await page.run(transfer + drop, [page.origin.url("/dropped.png")])
      try await page.run(transfer + paste, ["see " + page.origin.url("/pasted.png")])
      for name in ["one.png", "two.png", "dropped.png", "pasted.png"] {
        try await page.sees("is('\(name)', 'success') && shows('\(name)')")
      }
    }
  }

  @Test("the page asks for a token, reports a wrong one, and shows what the token allows")
  func asksForToken() async throws {
    try await withDashboard(Dashboard.withTokens) { page in
      page.origin.on("/cat.jpg", .ok(Fixtures.jpeg))
      try await page.sees("$('token').open")
      try await page.browser.type("wrong\u{E007}", into: "#token-value")
      try await page.sees("text($('token-why')).includes('token is not valid')")
      try await page.browser.type("web\u{E007}", into: "#token-value")
      try await page.sees("!$('token').open && $('connection').dataset.state === 'live'")
      try await page.browser.type(page.origin.url("/cat.jpg") + "\u{E007}", into: "#urls")
      try await page.sees("is('cat.jpg', 'success') && shows('cat.jpg')")
      try await page.sees("text($('cache-note')).includes('admin') && $('cache-shown').hidden")

      // The token is stored for the tab only, and can be removed.
      #expect(try await page.run("return localStorage.getItem('token')") == nil)
      try await page.browser.click("#forget-token")
      try await page.sees("$('token').open && cards.length === 0")
      try await page.browser.click("#token-keep")
      try await page.browser.type("root\u{E007}", into: "#token-value")
      try await page.sees("is('cat.jpg', 'success') && !$('cache-shown').hidden")
      #expect(try await page.run("return localStorage.getItem('token')") as? String == "root")
    }
  }

  @Test("an admin can clear the cache and mark the network as constrained")
  func administers() async throws {
    try await withDashboard { page in
      page.origin.on("/cat.jpg", .ok(Fixtures.jpeg))
      let id = try await page.service.submit(url: page.origin.url("/cat.jpg"))
      _ = try await page.service.finished(id)
      try await page.sees("text($('cache-text')).includes('0 % of 1 job')")
      try await page.sees("text($('queue-text')).includes('0 of 64 workers busy')")
      try await page.browser.click("#clear-cache")
      try await page.browser.click("#confirm-yes")
      try await eventually {
        try await page.service.get("/cache").json()["entries"] as? Int == 0
      }
      try await page.sees("!$('network-shown').hidden")
      try await page.browser.click("#constrained")
      try await eventually {
        try await page.service.get("/network").json()["constrained"] as? Bool == true
      }
      try await page.sees("$('constrained').checked")
    }
  }

  @Test("foreign texts are shown as text, never as markup")
  func escapes() async throws {
    try await withDashboard { page in
      let tag = "<img src=x onerror=\"hacked=1\">"
      let path = "/%3Cscript%3Ehacked=1%3C%2Fscript%3E"
      let url = page.origin.url(path + "?<svg/onload=hacked=1>")
      _ = try await page.service.submit(["url": url, "tags": [tag], "max_attempts": 1])
      let name = "<script>hacked=1</script>"
      try await page.sees("is('\(name)', 'failure')")
      try await page.click("details", of: name)
      try await page.sees("text($('details-facts')).includes('onerror=')")
      let strange =
        "document.querySelectorAll('.card script, dialog script, [onerror], svg').length"
      #expect(try await page.run("return \(strange)") as? Int == 0)
      #expect(try await page.run("return typeof hacked") as? String == "undefined")
      // A script of the page cannot turn text into markup either.
      let refused = "try { document.body.innerHTML = 'x' } catch (error) { return error.name }"
      #expect(try await page.run(refused) as? String == "TypeError")
      _ = try await page.browser.complaints()
    }
  }
}

@Suite("The dashboard's wall", .browser, .timeLimit(.minutes(15)))
struct DashboardWallTests {
  @Test("a thousand jobs need few elements, and the keyboard moves over them")
  func holdsMany() async throws {
    try await withDashboard { page in
      page.origin.on("/held.png", .held(Fixtures.png, by: Gate()))
      for part in 0..<2 {
        let urls = (0..<600).map { ["url": page.origin.url("/held.png?\(part * 600 + $0)")] }
        #expect(try await page.service.submit(urls).status == 202)
      }
      try await page.sees("text($('shown')) === '1,200 jobs' && cards.length > 4")
      let most = "cards.length < 60 && document.getElementsByTagName('*').length < 2500"
      try await page.sees(most)
      try await page.run("cards[0].focus()")
      try await page.browser.press("\u{E014}")
      try await page.sees("document.activeElement.ariaPosInSet === '2'")
      try await page.browser.press("\u{E010}")
      try await page.sees("document.activeElement.ariaPosInSet === '1200' && scrollY > 20000")
      try await page.sees(most)
      try await page.browser.press("\u{E013}")
      try await page.sees("Number(document.activeElement.ariaPosInSet) < 1200")
      // New jobs do not move the page of a user who has scrolled down.
      let id = try await page.service.submit(url: page.origin.url("/held.png?new"))
      try await page.sees("text($('newer')).includes('1 newer job')")
      try await page.browser.click("#newer")
      try await page.sees("scrollY < 300 && cards.some((one) => one.dataset.id === '\(id)')")
    }
  }

  @Test("the page fits a narrow window, and its text has contrast in light and dark")
  func fits() async throws {
    try await withDashboard(["IMAGEFETCH_JOBS_MAX_ATTEMPTS": "1"]) { page in
      let long = page.origin.url("/" + String(repeating: "x", count: 300) + ".png")
      page.origin.on("/cat.jpg", .ok(Fixtures.jpeg))
      let urls = [long, page.origin.url("/cat.jpg")].map { ["url": $0] }
      _ = try await page.service.submit(urls)
      try await page.sees("cards.length === 2 && shows('cat.jpg')")
      for isDark in [false, true] {
        for width in [320, 360, 800, 1400] {
          try await page.browser.emulate(width: width, height: 700, isDark: isDark)
          try await page.run("$('glance').open = true")
          try await page.sees(
            "innerWidth === \(width) && document.documentElement.scrollWidth <= innerWidth")
        }
        let faint = try await page.run(Self.contrast + "return faint();") as? [String]
        #expect(faint == [], "dark: \(isDark)")
      }
    }
  }

  @Test("the page reads an event stream in any pieces, and continues where it broke")
  func listens() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    try await withService { service in
      let page = try await service.get("/")
      var job = try await Self.failedJob(service)
      let json = String(decoding: try JSONSerialization.data(withJSONObject: job), as: UTF8.self)
      let middle = json.index(after: json.firstIndex(of: ",")!)
      // The list has an older state than the events.
      job.merge(["version": 1, "phase": "queued", "error": NSNull()]) { $1 }
      let list = try Self.list([job])
      let head = ScriptedReply.head(
        200, [("Content-Type", "text/event-stream"), ("Connection", "close")])
      let pieces = [
        "\u{FEFF}: a comment\r\nretry: 1\r\rid: 7\revent: phase\r", "\ndata:\(json[..<middle])\r\n",
        "data: \(json[middle...])", "\nunknown: field\n", "\n", "id: at-5\r\n\r",
        "\ndata: {\"lost\":",
      ]
      origin.on("/", .ok(Array(page.body), type: "text/html"))
      origin.on("/jobs", .ok(list, type: "application/json"))
      origin.on(
        "/events",
        inOrder: [
          ScriptedReply(
            [.send(head)]
              + pieces.flatMap { [.send(Array($0.utf8)), .pause(.milliseconds(20))] } + [.close]),
          ScriptedReply(.send(head), .waitForClose),
        ])
      let browser = try await Browser()
      let seen = Dashboard(service: service, origin: origin, browser: browser)
      try await browser.open(origin.url("/"))
      try await seen.sees("is('one.png', 'failure') && $('connection').dataset.state === 'live'")
      #expect(await origin.waitForRequests(to: "/events", count: 2))
      #expect(origin.requests(to: "/events").map { $0.header("Last-Event-ID") } == [nil, "at-5"])
      #expect(try await seen.complaints() == [])
      await browser.close()
    }
  }

  @Test("running and searched jobs stay on the page next to a very long queue")
  func holdsRunning() async throws {
    let origin = try ScriptedOrigin()
    defer { origin.stop() }
    try await withService { service in
      let failed = try await Self.failedJob(service)
      let id = try #require(failed["id"] as? String)
      // Newest first, in the service's order.
      let jobs = { (phase: String, last: Int, count: Int) in
        (0..<count).map { index in
          let end = String(last - index)
          let changes: [String: Any] = [
            "id": id.dropLast(end.count) + end, "phase": phase, "error": NSNull(),
          ]
          return failed.merging(changes) { $1 }
        }
      }
      let queued = jobs("queued", 9_999, 4_090)
      let events = try (queued + jobs("loading", 5_900, 10)).map { job in
        let data = try JSONSerialization.data(withJSONObject: job)
        return "event: phase\nid: 1\ndata: \(String(decoding: data, as: UTF8.self))\n\n"
      }
      let newest = try Self.list(Array(queued.prefix(1_000)), cursor: "more")
      let cancelled = try Self.list(jobs("cancelled", 2_000, 3))
      let head = ScriptedReply.head(200, [("Content-Type", "text/event-stream")])
      origin.on("/", .ok(Array(try await service.get("/").body), type: "text/html"))
      origin.on("/jobs") { request in
        let isSought = request.target.contains("phase=cancelled")
        return .ok(isSought ? cancelled : newest, type: "application/json")
      }
      origin.on(
        "/events", ScriptedReply(.send(head + Array(events.joined().utf8)), .waitForClose))
      let browser = try await Browser()
      let page = Dashboard(service: service, origin: origin, browser: browser)
      try await browser.open(origin.url("/"))
      try await page.sees("text($('shown')) === '4,000 jobs; the service has more'")
      try await page.sees(
        "text(document.querySelector('.chip[data-phase=loading]')).includes('10')")
      try await browser.click(".chip[data-phase=cancelled]")
      try await page.sees("cards.length === 3 && text($('shown')) === '3 of 4,000+ jobs'")
      #expect(try await page.complaints() == [])
      await browser.close()
    }
  }

  /// A job in the service's format.
  private static func failedJob(_ service: RunningService) async throws -> [String: Any] {
    let answer = try await service.submit(["url": "http://127.0.0.1:1/one.png", "max_attempts": 1])
    return try await service.finished(try #require(answer.json()["id"] as? String))
  }

  /// A response of `GET /jobs` with these jobs.
  private static func list(_ jobs: [[String: Any]], cursor: String? = nil) throws -> [UInt8] {
    let list: [String: Any] = ["jobs": jobs, "next_cursor": cursor ?? NSNull()]
    return Array(try JSONSerialization.data(withJSONObject: list))
  }

  /// The texts whose contrast (WCAG 2.2, 1.4.3) is below 4.5. Texts over images have their own background.
  private static let contrast = """
    const numbers = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
    const luminance = (color) => {
      const scale = color.startsWith('color(') ? 1 : 255;
      const [r, g, b] = numbers(color).map((value) => value / scale)
        .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
      const color = getComputedStyle(element).backgroundColor;
      const isClear = color === 'transparent' || numbers(color)[3] === 0;
      return isClear && element.parentElement ? ground(element.parentElement) : color;
    };
    const isSeen = (element) => element.checkVisibility({ visibilityProperty: true })
      && !element.disabled && !element.closest('[aria-hidden=true]');
    const faint = () => [...document.querySelectorAll('body *')].filter((element) => isSeen(element)
      && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
      .map((element) => {
        const lights = [getComputedStyle(element).color, ground(element)].map(luminance).sort((a, b) => b - a);
        return [(lights[0] + 0.05) / (lights[1] + 0.05), element.className + ' ' + element.innerText];
      }).filter(([ratio]) => !(ratio >= 4.5)).map((one) => one.join(' '));

    """
}
