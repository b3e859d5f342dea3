from app.driver.process import main

raise SystemExit(main())
